"""What SSA and the naive feature alignment share: the loss on Gaussian moments, and its options."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.divergences import METRICS, Metric, alignment_loss
from regtta.methods.base import Batch, GradientMethod, Rule, Stage
from regtta.options import check_choice


@dataclass(frozen=True)
class Alignment:
    """What a batch is compared with, in float64: k dimensions of the source.

    Attributes:
        view: takes features (B, D) to the k dimensions compared, (B, k).
        mean: (k,) the source's mean there.
        variance: (k,) the source's variance there.
        effect: (O, k) how much a step along each dimension moves each output.
    """

    view: Callable[[Tensor], Tensor]
    mean: Tensor
    variance: Tensor
    effect: Tensor


@dataclass(frozen=True, kw_only=True)
class AlignmentMethod(GradientMethod):
    """A method that aligns means and variances of k dimensions with the source's. Abstract."""

    weighting: bool = True
    metric: Metric = "kl"
    unbiased: bool = True
    clip: bool = True

    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        check_choice("metric", self.metric, METRICS.keys())

    @abstractmethod
    def alignment(self, stage: Stage) -> Alignment:
        """The dimensions to compare."""

    def start(self, stage: Stage) -> Rule:
        """Weigh the dimensions and get ready for batches."""
        return AlignmentRule(self, stage)


class AlignmentRule(Rule):
    """``L = Σ_d α_d · D(N(μ_d, σ²_d), N(μˢ_d, λ_d))`` on each batch."""

    def __init__(self, method: AlignmentMethod, stage: Stage) -> None:
        target = method.alignment(stage)
        alpha = significance(target.effect) if method.weighting else torch.ones_like(target.mean)
        self.method = method
        self.view = target.view
        self.dtype = stage.dtype
        self.mean, self.variance, self.alpha = (
            values.to(stage.device, stage.dtype) for values in (target.mean, target.variance, alpha)
        )

    def update(self, batch: Batch) -> Tensor:
        """The alignment loss of one batch."""
        return alignment_loss(
            self.view(batch.features.to(self.dtype)),
            self.mean,
            self.variance,
            self.alpha,
            metric=self.method.metric,
            unbiased=self.method.unbiased,
        )


def significance(effect: Tensor) -> Tensor:
    """(k,) weights ``α_d = 1 + ‖effect_d‖₂`` of dimensions that move the outputs by ``effect`` (O, k).

    Example:
        >>> significance(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
        tensor([6., 1.])
    """
    norms: Tensor = torch.linalg.vector_norm(effect, dim=0)
    return norms + 1
