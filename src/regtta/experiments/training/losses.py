"""Losses of source models: regression and classification."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Constant:
    """Base of objectives without modules or schedules of their own."""

    modules: list[nn.Module] = []  # noqa: RUF012 - an empty constant

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: the objective is constant."""


class Regression(_Constant):
    """Mean squared error of predictions ``(B, O)``."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``mean (f(x) − y)²``."""
        return functional.mse_loss(model(inputs), targets)


class Classification(_Constant):
    """Cross-entropy of logits ``(B, C)`` and class indices ``(B, 1)``."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``mean −log softmax(f(x))_y``."""
        return functional.cross_entropy(model(inputs), targets.squeeze(1).long())
