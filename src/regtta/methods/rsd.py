"""RSD: representation subspace distance.

Chen, Wang, Wang and Long, "Representation Subspace Distance for Domain Adaptation Regression", ICML 2021, in
the test-time form of Adachi et al., ICLR 2025: the source bases are computed beforehand from the whole source set
instead of from a source mini-batch.

Choices where the paper gives no details: Adam with learning rate 1e-3 on affine parameters; as many bases as the
batch has samples, at most ``k``; the distance is the sum of the sines of the principal angles plus 0.1 times the
basis mismatch. The bases are the leading singular vectors of the uncentred features; those of the source follow from
its mean and covariance, without a further pass over the data.

Only well-defined bases are compared, at most as many as the ranks of the batch and source features. Two subspaces of
dimension n in d dimensions share at least 2n − d directions for any batch: the corresponding angles are 0, and with two
or more of them P and Q are arbitrary. Therefore n is at most (d + 1) / 2, which maximises the number of non-trivial
angles, with d the larger of the two ranks.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.losses import subspace_distance
from regtta.methods.rules import Batch, Rule, Skip
from regtta.options import check_non_negative, check_positive_int
from regtta.statistics import LinAlgError, SourceStatistics, stable_svd


@dataclass(frozen=True, kw_only=True)
class RSD(GradientMethod):
    """Minimisation of the distance between the subspaces spanned by batch and source features.

    ``L = Σ sin θ_i + mismatch · ‖|P| − |Q|‖_F``, with ``U_sᵀ U_t = P cos(Θ) Qᵀ``.

    A batch is skipped, with the reason in the step's verdict, if its singular value decomposition does not converge or
    if the features of batch and source both have rank one.

    Args:
        k: maximum number of bases.
        mismatch: weight of the basis mismatch.

    Example:
        >>> RSD().mismatch
        0.1
    """

    k: int = 100
    mismatch: float = 0.1

    name: ClassVar[str] = "rsd"
    paper: ClassVar[str] = "Chen et al., ICML 2021"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    revision: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive_int("k", self.k)
        check_non_negative("mismatch", self.mismatch)

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, with the bases and rank of the source features."""
        source = context.require_source()
        bases = uncentred_bases(source)[:, : self.k]
        return _SubspaceDistance(bases.to(context.device, context.dtype), uncentred_rank(source), self.mismatch)


def uncentred_bases(source: SourceStatistics) -> Tensor:
    """Return the left singular vectors of the uncentred source features as columns, leading first, ``(D, D)``."""
    return source.uncentred_spectrum[1]


def uncentred_rank(source: SourceStatistics) -> int:
    """Return the rank: the number of singular values above ``s₁ · D · 1.19e-7``, with float32's epsilon."""
    squares, _ = source.uncentred_spectrum
    return int((squares > squares[0] * (len(squares) * torch.finfo(torch.float32).eps) ** 2).sum())


def numerical_rank(values: Tensor, size: int) -> int:
    """Return how many singular ``values`` of a matrix with larger side ``size`` exceed the rounding error."""
    return int((values > values[0] * size * torch.finfo(values.dtype).eps).sum())


class _SubspaceDistance(Rule):
    def __init__(self, bases: Tensor, rank: int, mismatch: float) -> None:
        self.bases = bases
        self.rank = rank
        self.mismatch = mismatch

    def update(self, batch: Batch) -> Tensor | Skip:
        """Return the distance between the subspaces of batch and source, or skip the batch."""
        features = batch.features.to(self.bases.dtype)
        try:
            bases, values, _ = stable_svd(features.T)
            count = self._comparable(numerical_rank(values.detach(), max(features.shape)))
            if not count:
                return Skip("the features span no more than one direction")
            sines, mismatch = subspace_distance(self.bases[:, :count], bases[:, :count])
        except LinAlgError:
            return Skip("the batch's singular value decomposition did not converge")
        return sines + self.mismatch * mismatch

    def _comparable(self, rank: int) -> int:
        """Return the number of comparable bases for batch features of this rank."""
        dimensions = max(rank, self.rank)
        if dimensions < 2:
            return 0  # both features span at most one direction
        return min(rank, self.rank, self.bases.shape[1], (dimensions + 1) // 2)
