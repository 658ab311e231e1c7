"""RSD: representation subspace distance.

Chen, Wang, Wang and Long, "Representation Subspace Distance for Domain Adaptation Regression", ICML 2021, in
the test-time form of Adachi et al., ICLR 2025: the source's bases come from the whole source set beforehand
instead of from a mini-batch beside the target's.

Our readings, where the paper is silent: Adam with learning rate 1e-3 on affine parameters; as many bases as the
batch has samples, at most ``k``; the distance is the sum of the sines of the principal angles plus 0.1 times the
basis mismatch. The source's bases are the leading singular vectors of its features as they are, not centred, as
the batch's are; they follow from the mean and the covariance, so no pass over the data is needed for them.

Only bases that mean something are compared. Beyond the rank of the batch's or of the source's features there are none.
And two subspaces of n out of d dimensions share at least 2n − d directions whatever the batch is: their angles are 0,
and with two of them or more the bases P and Q are arbitrary. So n is at most (d + 1) / 2, where the most angles can
differ from 0; for d the larger of both ranks is taken.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.decompositions import LinAlgError, singular_vectors
from regtta.divergences import subspace_distance
from regtta.methods.base import Batch, GradientMethod, MethodContext, Rule, Skip
from regtta.options import check_count, check_not_negative
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, kw_only=True)
class RSD(GradientMethod):
    """Pulls the subspace that a batch's features span to the one the source's span.

    ``L = Σ sin θ_i + mismatch · ‖|P| − |Q|‖_F``, with ``U_sᵀ U_t = P cos(Θ) Qᵀ``.

    A batch whose singular value decomposition does not converge, or whose features lie on one line as the source's do,
    is skipped, and the step's verdict says so.

    Args:
        k: at most this many bases.
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
        check_count("k", self.k)
        check_not_negative("mismatch", self.mismatch)

    def start(self, context: MethodContext) -> Rule:
        """Take the source's bases and their rank from the statistics."""
        source = context.require_source()
        bases = uncentred_bases(source)[:, : self.k]
        return _SubspaceDistance(bases.to(context.device, context.dtype), uncentred_rank(source), self.mismatch)


def uncentred_bases(source: SourceStatistics) -> Tensor:
    """(D, D) left singular vectors of the source's features (not centred) as columns, leading ones first."""
    return source.uncentred_spectrum[1]


def uncentred_rank(source: SourceStatistics) -> int:
    """How many of them mean something: those of singular values above ``s₁ · D · 1.19e-7``, float32's epsilon."""
    squares, _ = source.uncentred_spectrum
    return int((squares > squares[0] * (len(squares) * torch.finfo(torch.float32).eps) ** 2).sum())


def numerical_rank(values: Tensor, size: int) -> int:
    """How many singular ``values``, falling, of a matrix whose larger side is ``size`` are more than rounding."""
    return int((values > values[0] * size * torch.finfo(values.dtype).eps).sum())


class _SubspaceDistance(Rule):
    def __init__(self, bases: Tensor, rank: int, mismatch: float) -> None:
        self.bases = bases
        self.rank = rank
        self.mismatch = mismatch

    def update(self, batch: Batch) -> Tensor | Skip:
        """The distance between the batch's subspace and the source's."""
        features = batch.features.to(self.bases.dtype)
        try:
            bases, values, _ = singular_vectors(features.T)
            count = self._comparable(numerical_rank(values.detach(), max(features.shape)))
            if not count:
                return Skip("the features span no more than one direction")
            sines, mismatch = subspace_distance(self.bases[:, :count], bases[:, :count])
        except LinAlgError:
            return Skip("the batch's singular value decomposition did not converge")
        return sines + self.mismatch * mismatch

    def _comparable(self, rank: int) -> int:
        """How many bases of a batch of features of this rank can be compared with the source's."""
        dimensions = max(rank, self.rank)
        if dimensions < 2:
            return 0  # both are the same line
        return min(rank, self.rank, self.bases.shape[1], (dimensions + 1) // 2)
