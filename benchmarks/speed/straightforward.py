"""Straightforward implementation of SSA's step from the paper, the reference for regtta's step.

Float32, every parameter with gradients, the model in training mode, torch's Adam on the affine parameters of the
normalisation layers, and the loss of the paper's equations. There are no backup copies, no guards and no transfers
from the device.
"""

import copy

import torch
from torch import Tensor, nn

from regtta.statistics import SourceStatistics

NORMALISATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


class StraightforwardSSA:
    """SSA on a copy of ``model``, batch by batch.

    Args:
        model: model that ends in the linear layer ``head``.
        source: mean, variances and directions of the source features.
        head: name of the last layer.
        k: number of directions, limited to the rank of the source features.
        lr: Adam's learning rate.
    """

    def __init__(
        self, model: nn.Module, source: SourceStatistics, head: str, *, k: int = 100, lr: float = 1e-3
    ) -> None:
        self.model = copy.deepcopy(model).train()
        layer = self.model.get_submodule(head)
        if not isinstance(layer, nn.Linear):
            raise TypeError(f"Expected a linear layer at {head!r}, found {type(layer).__name__}.")
        weight = layer.weight.detach()
        k = min(k, source.rank)
        self.mean = source.mean.to(weight)
        self.basis = source.basis[:, :k].to(weight)
        self.variances = source.variances[:k].to(weight)
        self.alpha = 1 + (weight @ self.basis).norm(dim=0)
        self.features = torch.empty(0)
        layer.register_forward_pre_hook(self._keep)
        affine = [
            parameter
            for module in self.model.modules()
            if isinstance(module, NORMALISATIONS)
            for parameter in module.parameters()
        ]
        self.optimizer = torch.optim.Adam(affine, lr=lr)
        self.last_loss = torch.empty(0)

    def adapt(self, x: Tensor) -> Tensor:
        """Return predictions for the batch, and update the model on it."""
        predictions: Tensor = self.model(x)
        self.last_loss = self._loss(self.features)
        self.model.zero_grad()
        self.last_loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return predictions.detach()

    def _keep(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.features = args[0]

    def _loss(self, features: Tensor) -> Tensor:
        projected = (features - self.mean) @ self.basis
        mean, variance = projected.mean(dim=0), projected.var(dim=0)
        zero = torch.zeros_like(mean)
        there = gaussian_kl(mean, variance, zero, self.variances)
        back = gaussian_kl(zero, self.variances, mean, variance)
        loss: Tensor = (self.alpha * (there + back)).sum()
        return loss


def gaussian_kl(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """Compute KL(N(mean, variance) ‖ N(mean0, variance0)) of every dimension.

    Example:
        >>> from torch import tensor
        >>> gaussian_kl(tensor(1.0), tensor(1.0), tensor(0.0), tensor(1.0))
        tensor(0.5000)
    """
    return (torch.log(variance0 / variance) + (variance + (mean - mean0) ** 2) / variance0 - 1) / 2
