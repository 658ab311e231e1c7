"""DANN: training on the source's labels and, without labels, against telling the domains apart.

Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016. A discriminator on the last stage's pooled
features learns to tell source from target; the gradient that reaches the features is reversed and scaled by
``λ_p = 2/(1 + exp(−10 p)) − 1``, and the learning rate is ``lr₀/(1 + 10 p)^0.75``, p the share of the training done. It
needs the target while training, so it is no test-time method.

Source and target go through the model one after the other, so that BatchNorm normalises each by itself and its running
statistics follow both.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from regtta.experiments.training.recipe import Recipe
from regtta.experiments.training.seeding import seeded
from regtta.experiments.training.views import plain_view
from regtta.features import FeatureModel

HIDDEN = 1024


class ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient is turned round and scaled."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, values: Tensor, scale: Tensor) -> Tensor:
        """Pass ``values`` on."""
        ctx.save_for_backward(scale)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        """``−scale`` times the gradient."""
        (scale,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return -scale * gradients[0], None


class AdversarialObjective:
    """Mean squared error on the source plus the discriminator's loss on both domains, reversed for the features.

    Args:
        head: name of the model's head, whose input the discriminator looks at.
        width: of those features.
        target: unlabelled inputs of the target, from which each step draws as many as the source's batch.
        recipe: whose learning rate is that of the start, and which says how the model is shown the target.
        seed: of the discriminator's first weights.
    """

    def __init__(self, head: str, width: int, target: Tensor, *, recipe: Recipe, seed: int) -> None:
        self._head = head
        self._target = target
        self._recipe = recipe
        self._scale = torch.zeros((), device=target.device)
        self.discriminator = seeded(lambda: discriminator(width), seed)
        self.modules: list[nn.Module] = [self.discriminator]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """A forward pass over a source batch, then one over a target batch.

        Both in one pass would be normalised by BatchNorm as one batch: the features of each domain then keep the offset
        of its mean to the common one, by which the discriminator tells them apart whatever the extractor does, while at
        test time a batch of the target is normalised by other statistics.
        """
        drawn = torch.randint(len(self._target), (len(inputs),), device=inputs.device)
        unlabelled = plain_view(self._target[drawn], self._recipe)
        run = FeatureModel(model, self._head)
        source, target = run(inputs), run(unlabelled)
        regression = functional.mse_loss(source.outputs, targets)
        seen: Tensor = ReverseGradient.apply(torch.cat([source.features, target.features]), self._scale)
        domain = torch.cat([torch.zeros_like(targets[:, :1]), torch.ones_like(targets[:, :1])])
        return regression + functional.binary_cross_entropy_with_logits(self.discriminator(seen), domain)

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Set the reversal's scale and the learning rate, in place so that a captured step sees them."""
        self._scale.fill_(reversal_scale(progress))
        for group in optimizer.param_groups:
            rate = decayed_rate(self._recipe.lr, progress)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def discriminator(width: int) -> nn.Sequential:
    """Two hidden layers of 1024 and one logit, as Ganin et al. put on their image features."""
    return nn.Sequential(
        nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
    )


def reversal_scale(progress: float) -> float:
    """``λ_p``, from 0 to 1.

    Example:
        >>> reversal_scale(0.0), round(reversal_scale(1.0), 4)
        (0.0, 0.9999)
    """
    return 2 / (1 + math.exp(-10 * progress)) - 1


def decayed_rate(start: float, progress: float) -> float:
    """``lr₀/(1 + 10 p)^0.75``.

    Example:
        >>> decayed_rate(0.01, 0.0), round(decayed_rate(0.01, 1.0), 6)
        (0.01, 0.001656)
    """
    return float(start / (1 + 10 * progress) ** 0.75)
