"""Naive feature alignment: Gaussian moments of each raw feature dimension, without a subspace.

The form known from test-time adaptation of classifiers, and the ablation baseline of Adachi et al., "Test-time
Adaptation for Regression by Subspace Alignment", ICLR 2025.
"""

import logging
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.alignment import Alignment, AlignmentMethod
from regtta.methods.base import MethodContext
from regtta.options import check_bool, check_positive_int
from regtta.statistics import SourceStatistics

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeatureAlignment(AlignmentMethod):
    """Alignment of the mean and variance of raw feature dimensions with the source.

    ``L = Σ_d α_d · D(N(μ_d, σ²_d), N(μˢ_d, σˢ²_d))`` over the selected dimensions d.

    Args:
        k: number of raw dimensions, selected by largest source variance; ``None`` selects all.
        weighting: ``α_d = 1 + ‖W_{:,d}‖₂`` (the paper's ``1 + |w_d|`` for one output), else 1.
        metric: ``"kl"`` (both directions, the paper's), ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 (the paper's equations divide by B).
        clip: exclude dimensions with zero source variance, which would make the loss diverge.
        window: number of most recent samples to estimate the moments from; 0 uses the batch alone.

    Example:
        >>> FeatureAlignment(k=10, weighting=False).metric
        'kl'
    """

    clip: bool = True
    k: int | None = None

    name: ClassVar[str] = "feature_alignment"
    paper: ClassVar[str] = "the naive form in Adachi et al., ICLR 2025"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_bool("clip", self.clip)
        if self.k is not None:
            check_positive_int("k", self.k)

    def alignment(self, context: MethodContext) -> Alignment:
        """Return the selected raw dimensions; the effect of each on the outputs is its column of the head's weight."""
        source = context.require_source()
        chosen = largest_variance_dimensions(source, self.k, clip=self.clip)
        at_device = chosen.to(context.device)
        return Alignment(
            view=lambda features: features[:, at_device],
            mean=source.mean[chosen],
            variance=source.feature_variances[chosen],
            effect=context.require_head().weight.detach().cpu().double()[:, chosen],
        )


def largest_variance_dimensions(source: SourceStatistics, k: int | None, *, clip: bool) -> Tensor:
    """Return the indices ``(k,)`` of the raw dimensions with the largest source variance, in descending order."""
    if k is not None and k > source.dimensions and not clip:
        raise OptionError(
            f"Expected k between 1 and {source.dimensions}, the width of the features, found {k}. k=None selects all."
        )
    order = source.feature_variances.argsort(descending=True, stable=True)
    if clip:
        order = order[source.valid_mask[order]]
        if k is not None and k > len(order):
            logger.warning("k=%d exceeds the %d valid dimensions; using all of these.", k, len(order))
    return order[:k]
