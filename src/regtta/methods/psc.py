"""PSC: alignment of the covariance in the significant subspace, with a slack term outside it.

PSC of arXiv 2603.09338, which also proposes CWSA. Features outside the subspace of the source are invisible to SSA and
CWSA. PSC adds the divergence of what lies outside the subspace, described by one mean vector and one variance.

Choice where the formula leaves it open: the slack is divided by the number of dimensions outside, so that both terms
are means over directions and one weight suits features of any width.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.methods.base import MethodContext
from regtta.methods.covariance_alignment import CovarianceMethod, CovarianceRule
from regtta.methods.losses import symmetric_kl
from regtta.methods.rules import Batch, Rule
from regtta.options import check_positive


@dataclass(frozen=True, kw_only=True)
class PSC(CovarianceMethod):
    """Alignment of mean and covariance in the principal subspace, and of the mean variance outside it.

    ``L = L_CWSA + slack/m · symKL(N(μ⊥, ν⊥ I), N(0, τ I))`` with mean μ⊥ and mean variance ν⊥ of the m = D − k
    dimensions outside the subspace, and the mean τ of the remaining eigenvalues of the source. Without any variance of
    the source outside the subspace there is no slack, and the loss is that of CWSA.

    Args:
        k: number of leading directions, at most the rank of the source features.
        weighting: weight each direction q inside by ``1 + ‖W V q‖₂``, else by 1.
        slack: weight of the divergence outside the subspace.

    Example:
        >>> PSC(slack=0.5).k
        25
    """

    slack: float = 1.0

    name: ClassVar[str] = "psc"
    paper: ClassVar[str] = "arXiv 2603.09338"

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive("slack", self.slack)

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream."""
        return _WithSlack(self, context)


class _WithSlack(CovarianceRule):
    def __init__(self, method: PSC, context: MethodContext) -> None:
        super().__init__(method, context)
        source, inside = context.require_source(), len(self.subspace.variances)
        self.slack = method.slack if inside < source.rank else 0.0
        self.outside = source.dimensions - inside
        self.tail = source.variances[inside:].mean().to(context.device, context.dtype)

    def update(self, batch: Batch) -> Tensor:
        """Return the divergence of the batch from the source, inside and outside the subspace."""
        centred = batch.features.to(self.dtype) - self.subspace.mean
        values = centred @ self.subspace.basis
        loss = self.divergence(values)
        if not self.slack:
            return loss
        rest = centred - values @ self.subspace.basis.T
        mean = rest.mean(dim=0)
        variance = ((rest - mean) ** 2).sum() / ((len(rest) - 1) * self.outside)
        # Isotropic Gaussians in m dimensions diverge m times as much as those of one dimension at distance ‖μ⊥‖/√m.
        distance = torch.linalg.vector_norm(mean) / self.outside**0.5
        return loss + self.slack * symmetric_kl(distance, variance, torch.zeros_like(distance), self.tail)
