"""CWSA: alignment of the whole covariance in the significant subspace.

CWSA of arXiv 2603.09338, an extension of SSA (Adachi et al., ICLR 2025). SSA aligns the variance along each leading
direction of the source; correlations between directions, which are 0 on the source, remain unconstrained. CWSA also
aligns the variances along the diagonals (e_i ± e_j)/√2 of all pairs of directions, which determine the covariance.

Choices: the covariance of the batch is divided by B−1; for several outputs, the norm over outputs replaces ``|aᵀq|``.
There are k² directions q, and the loss takes memory and time in proportion to k²: the default is k=25, against 100 in
SSA, and directions beyond the rank of the source features, whose variance is numerically 0, are never aligned.
"""

from dataclasses import dataclass
from typing import ClassVar

from regtta.methods.base import MethodContext
from regtta.methods.covariance_alignment import CovarianceMethod, CovarianceRule
from regtta.methods.rules import Rule


@dataclass(frozen=True, kw_only=True)
class CWSA(CovarianceMethod):
    """Alignment of mean and covariance with the source in the principal subspace of the source features.

    ``L = mean_q (1 + |aᵀq|) · symKL(N(qᵀμ, qᵀΣq), N(0, qᵀΛq))`` over q in e_i and (e_i ± e_j)/√2, with mean μ and
    covariance Σ of the projected batch ``(z − μˢ) V``, source variances Λ and ``a = Vᵀw``.

    Args:
        k: number of leading directions, at most the rank of the source features.
        weighting: weight each q by ``1 + ‖W V q‖₂`` (``1 + |aᵀq|`` for one output), else by 1.

    Example:
        >>> CWSA(k=10).weighting
        True
    """

    name: ClassVar[str] = "cwsa"
    paper: ClassVar[str] = "arXiv 2603.09338"

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream."""
        return CovarianceRule(self, context)
