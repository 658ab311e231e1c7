"""BatchNorm over a batch whose samples lie in several processes."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from regtta.processes import ALONE, Processes


@dataclass(frozen=True)
class Shares:
    """A batch dealt to processes.

    Attributes:
        processes: who has the samples.
        empty: whether this one has none, and runs the model on a sample that stands for nothing.
    """

    processes: Processes = ALONE
    empty: bool = False

    def statistics(self, inputs: Tensor) -> tuple[Tensor, Tensor, int]:
        """Mean and biased variance (C,) of inputs (B, C, ...) over the whole batch, and the values behind each.

        Differentiable. Means and variances of the processes are pooled, so that no digits cancel.
        """
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        dims = [dim for dim in range(inputs.ndim) if dim != 1]
        mean, variance = inputs.mean(dim=dims), inputs.var(dim=dims, correction=0)
        values = inputs.numel() // inputs.shape[1]
        if self.processes.size == 1:
            return mean, variance, values
        own = torch.tensor([0 if self.empty else values], device=mean.device, dtype=torch.float64)
        each = [1] * self.processes.size
        counts = self.processes.gather(own, each)
        pooled = self.processes.gather(torch.stack([mean, variance]).unsqueeze(0), each)
        weights = (counts / counts.sum()).to(mean.dtype).unsqueeze(1)
        mean = (weights * pooled[:, 0]).sum(dim=0)
        variance = (weights * (pooled[:, 1] + (pooled[:, 0] - mean) ** 2)).sum(dim=0)
        return mean, variance, int(counts.sum())

    def normalise(self, layer: _BatchNorm, inputs: Tensor) -> Tensor:
        """What ``layer`` in training mode gives on this process's part of the batch; its running statistics follow."""
        mean, variance, values = self.statistics(inputs)
        _follow(layer, mean.detach(), variance.detach() * (values / max(1, values - 1)))
        shape = [1, -1] + [1] * (inputs.ndim - 2)
        scale = torch.rsqrt(variance + layer.eps)
        if layer.affine:
            scale = scale * layer.weight
        shift = -mean * scale
        if layer.affine:
            shift = shift + layer.bias
        return (inputs * scale.reshape(shape) + shift.reshape(shape)).to(inputs.dtype)


@torch.no_grad()
def _follow(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics by the layer's momentum; without one they are a plain mean."""
    if layer.running_mean is None or layer.running_var is None:
        return
    share = layer.momentum
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        share = 1 / int(layer.num_batches_tracked) if share is None else share
    for running, now in ((layer.running_mean, mean), (layer.running_var, variance)):
        running.lerp_(now.to(running), share or 0.0)
