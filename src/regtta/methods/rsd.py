"""RSD: representation subspace distance.

Chen, Wang, Wang and Long, "Representation Subspace Distance for Domain Adaptation Regression", ICML 2021, in
the test-time form of Adachi et al., ICLR 2025: the source's bases come from the whole source set beforehand
instead of from a mini-batch beside the target's.

Our readings, where the paper is silent: Adam with learning rate 1e-3 on affine parameters; as many bases as the
batch has samples, at most ``k``; the distance is the sum of the sines of the principal angles plus 0.1 times the
basis mismatch. The source's bases are the leading singular vectors of its features as they are, not centred, as
the batch's are; they follow from the mean and the covariance, so no pass over the data is needed for them.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.divergences import subspace_distance
from regtta.methods.base import Batch, GradientMethod, Rule, Skip, Stage
from regtta.options import check_count, check_not_negative
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, kw_only=True)
class RSD(GradientMethod):
    """Pulls the subspace that a batch's features span to the one the source's span.

    ``L = Σ sin θ_i + mismatch · ‖|P| − |Q|‖_F``, with ``U_sᵀ U_t = P cos(Θ) Qᵀ``.

    A batch whose singular value decomposition is degenerate has no gradient: it is skipped, and the step's verdict
    says so.

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

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        check_count("k", self.k)
        check_not_negative("mismatch", self.mismatch)

    def start(self, stage: Stage) -> Rule:
        """Compute the source's bases."""
        bases = uncentred_bases(stage.require_source())[:, : self.k]
        return _SubspaceDistance(bases.to(stage.device, stage.dtype), self.mismatch)


def uncentred_bases(source: SourceStatistics) -> Tensor:
    """(D, D) left singular vectors of the source's features (not centred) as columns, leading ones first."""
    second = source.covariance() * ((source.count - 1) / source.count) + torch.outer(source.mean, source.mean)
    vectors: Tensor = torch.linalg.eigh(second).eigenvectors
    return vectors.flip(1)


class _SubspaceDistance(Rule):
    def __init__(self, bases: Tensor, mismatch: float) -> None:
        self.bases = bases
        self.mismatch = mismatch

    def update(self, batch: Batch) -> Tensor | Skip:
        """The distance between the batch's subspace and the source's."""
        features = batch.features.to(self.bases.dtype)
        count = min(len(features), self.bases.shape[1])
        try:
            bases = torch.linalg.svd(features.T, full_matrices=False).U[:, :count]
            sines, mismatch = subspace_distance(self.bases[:, :count], bases)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return Skip("the batch's singular value decomposition did not converge")
        return sines + self.mismatch * mismatch
