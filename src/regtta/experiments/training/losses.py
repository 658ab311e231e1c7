"""What source models are trained for: numbers, or classes."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Constant:
    """An objective that trains the model alone and never changes."""

    modules: list[nn.Module] = []  # noqa: RUF012 - an empty constant

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Nothing changes over the training."""


class Regression(_Constant):
    """Mean squared error."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """``mean (f(x) − y)²``."""
        return functional.mse_loss(model(inputs), targets)


class Classification(_Constant):
    """Cross-entropy of logits (B, C) with the numbers of classes (B, 1)."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """``mean −log softmax(f(x))_y``."""
        return functional.cross_entropy(model(inputs), targets.squeeze(1).long())
