"""Training objectives beyond regression: rotation prediction (TTT) and domain-adversarial training (DANN)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.methods import ROTATIONS, rotate_images
from regtta.models import FeatureModel
from regtta_bench.training.recipe import Recipe, eval_transform, make_seeded


class RotationObjective:
    """Mean squared error plus the cross-entropy of a linear rotation classifier, ``branch``.

    Args:
        head: name of the model's head.
        width: number of its features.
        seed: seed of the branch's initial weights.
    """

    def __init__(self, head: str, width: int, *, seed: int) -> None:
        self._head = head
        self.branch = make_seeded(lambda: nn.Linear(width, ROTATIONS), seed)
        self.modules: list[nn.Module] = [self.branch]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of both losses, from one forward pass over the images and their rotated copies."""
        turns = torch.randint(ROTATIONS, (len(inputs),), device=inputs.device)
        forward = FeatureModel(model, self._head)(torch.cat([inputs, rotate_images(inputs, turns)]))
        regression = functional.mse_loss(forward.outputs[: len(inputs)], targets)
        return regression + functional.cross_entropy(self.branch(forward.features[len(inputs) :]), turns)

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: the objective is constant."""


DISCRIMINATOR_WIDTH = 1024


class ReverseGradient(torch.autograd.Function):
    """Identity whose gradient is reversed and scaled."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, values: Tensor, scale: Tensor) -> Tensor:
        """Return ``values`` unchanged."""
        ctx.save_for_backward(scale)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient times ``−scale``."""
        (scale,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return -scale * gradients[0], None


class AdversarialObjective:
    """Mean squared error on the source plus the discriminator's loss on both domains, with reversed gradient.

    Args:
        head: name of the model's head, whose input is also the discriminator's.
        width: number of those features.
        target: unlabelled target inputs, from which each step draws as many as there are in the source batch.
        recipe: initial learning rate, and preprocessing of the target inputs.
        seed: seed of the discriminator's initial weights.
    """

    def __init__(self, head: str, width: int, target: Tensor, *, recipe: Recipe, seed: int) -> None:
        self._head = head
        self._target = target
        self._recipe = recipe
        self._scale = torch.zeros((), device=target.device)
        self.discriminator = make_seeded(lambda: make_discriminator(width), seed)
        self.modules: list[nn.Module] = [self.discriminator]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of both losses, from one forward pass over a source batch and one over a target batch.

        In a single pass BatchNorm would normalise both domains as one batch. The features of each domain would then
        keep the offset of its mean from the common one, so the discriminator could always separate them, while at test
        time a target batch is normalised by other statistics.
        """
        drawn = torch.randint(len(self._target), (len(inputs),), device=inputs.device)
        unlabelled = eval_transform(self._target[drawn], self._recipe)
        run = FeatureModel(model, self._head)
        source, target = run(inputs), run(unlabelled)
        regression = functional.mse_loss(source.outputs, targets)
        seen: Tensor = ReverseGradient.apply(torch.cat([source.features, target.features]), self._scale)
        domain = torch.cat([torch.zeros_like(targets[:, :1]), torch.ones_like(targets[:, :1])])
        return regression + functional.binary_cross_entropy_with_logits(self.discriminator(seen), domain)

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Update the reversal scale and the learning rate, in place so that a captured step sees them."""
        self._scale.fill_(reversal_scale(progress))
        for group in optimizer.param_groups:
            rate = decay_learning_rate(self._recipe.lr, progress)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def make_discriminator(width: int) -> nn.Sequential:
    """Return the discriminator of Ganin et al.: two hidden layers of 1024 units and one logit."""
    hidden = DISCRIMINATOR_WIDTH
    return nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
    )


def reversal_scale(progress: float) -> float:
    """Return ``λ_p = 2/(1 + exp(−10 p)) − 1``, which grows from 0 to 1.

    Example:
        >>> reversal_scale(0.0), round(reversal_scale(1.0), 4)
        (0.0, 0.9999)
    """
    return 2 / (1 + math.exp(-10 * progress)) - 1


def decay_learning_rate(start: float, progress: float) -> float:
    """Return the learning rate ``lr₀/(1 + 10 p)^0.75``.

    Example:
        >>> decay_learning_rate(0.01, 0.0), round(decay_learning_rate(0.01, 1.0), 6)
        (0.01, 0.001656)
    """
    return float(start / (1 + 10 * progress) ** 0.75)
