"""Base class of CWSA and PSC: alignment of the whole covariance in the principal subspace of the source features."""

import logging
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.methods.alignment import significance
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.losses import pair_means, pair_variances, symmetric_kl
from regtta.methods.rules import Batch, Rule
from regtta.options import DefaultInt, check_bool, check_positive_int
from regtta.statistics import SourceStatistics, Subspace, describe_few_samples

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CovarianceMethod(GradientMethod):
    """Abstract base of methods that align mean and covariance of the k leading directions with the source."""

    k: int = DefaultInt(25)
    weighting: bool = True

    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive_int("k", self.k)
        check_bool("weighting", self.weighting)

    def subspace(self, source: SourceStatistics) -> Subspace:
        """Return the k leading directions; a ``k`` above the rank is reduced, with a warning unless it is the default.

        Example:
            >>> import regtta
            >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
            >>> regtta.CWSA().subspace(regtta.collect(net, [torch.randn(50, 3)])).basis.shape
            torch.Size([8, 3])
        """
        return source.top(min(self.k, source.rank) if isinstance(self.k, DefaultInt) else self.k)


class CovarianceRule(Rule):
    """Divergence ``mean_q (1 + ‖W V q‖₂) · symKL(N(qᵀμ, qᵀΣq), N(0, qᵀΛq))`` of each batch.

    q runs over e_i and (e_i ± e_j)/√2, so that the divergence is 0 only if the whole covariance agrees.
    """

    def __init__(self, method: CovarianceMethod, context: MethodContext) -> None:
        subspace = method.subspace(context.require_source())
        few = describe_few_samples(context.require_source(), len(subspace.variances))
        if few:
            logger.warning("%s", few)
        self.dtype = context.dtype
        self.subspace = subspace.to(context.device, context.dtype)
        effect = context.require_head().weight.detach().cpu().double() @ subspace.basis
        variance = pair_variances(torch.diag(subspace.variances))
        alpha = significance(pair_means(effect)) if method.weighting else torch.ones_like(variance)
        self.variance, self.alpha = (values.to(context.device, context.dtype) for values in (variance, alpha))

    @property
    def capturable(self) -> bool:
        """True: the rule is stateless."""
        return True

    def update(self, batch: Batch) -> Tensor:
        """Return the divergence of the batch from the source."""
        return self.divergence(self.subspace.project(batch.features.to(self.dtype)))

    def divergence(self, values: Tensor) -> Tensor:
        """Return the divergence of coordinates ``(B, k)`` from the source, a scalar."""
        mean = values.mean(dim=0)
        centred = values - mean
        variance = pair_variances(centred.T @ centred / (len(values) - 1))
        # Rounding leaves variances of perfectly correlated coordinates at or below 0.
        variance = variance.clamp_min(torch.finfo(variance.dtype).eps * self.variance)
        mean = pair_means(mean)
        return (self.alpha * symmetric_kl(mean, variance, torch.zeros_like(mean), self.variance)).mean()
