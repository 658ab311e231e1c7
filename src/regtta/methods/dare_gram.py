"""DARE-GRAM: alignment of angle and scale of the inverse Gram matrices of source and batch.

Nejjar, Wang and Fink, "DARE-GRAM: Unsupervised Domain Adaptation Regression by Aligning Inverse Gram Matrices",
CVPR 2023. The least-squares solution of a linear head is ``(ZᵀZ)⁻¹ Zᵀ y``: heads fit both domains if the inverse Gram
matrices of their features agree. Test-time form: the Gram matrix of the source comes from the moments of the whole
source set, ``E[z zᵀ]``, instead of from a source mini-batch.

Choices: both Gram matrices are divided by their numbers of samples, so that batches of any size are comparable. The
number k of directions is the larger of those that carry the fraction ``explained`` of either Gram matrix, and at most
the numerical rank of each. Features that are 0 throughout the source have no angle and are left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.losses import column_cosines
from regtta.methods.rules import Batch, Rule, Skip
from regtta.options import check_fraction, check_non_negative, check_positive
from regtta.statistics import LinAlgError, stable_svd, truncated_inverse


@dataclass(frozen=True, kw_only=True)
class DareGram(GradientMethod):
    """Alignment of the truncated pseudo-inverse Gram matrices of batch and source.

    ``L = angle · mean_j (1 − cos(G⁺_j, Gˢ⁺_j)) + scale · ‖λ − λˢ‖₂ / k`` with ``G = ZᵀZ/B``, its k leading
    eigenvalues λ and the columns ``G⁺_j`` of its pseudo-inverse of rank k.

    A batch is skipped, with the reason in the step's verdict, if its singular value decomposition does not converge.

    Args:
        explained: fraction of the trace of a Gram matrix that the k leading directions carry.
        angle: weight of the angles between columns.
        scale: weight of the distance between eigenvalues.

    Example:
        >>> DareGram(explained=0.9).scale
        0.001
    """

    explained: float = 0.99
    angle: float = 0.05
    scale: float = 0.001

    name: ClassVar[str] = "dare_gram"
    paper: ClassVar[str] = "Nejjar et al., CVPR 2023"
    needs_source: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_fraction("explained", self.explained)
        check_positive("angle", self.angle)
        check_non_negative("scale", self.scale)

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream, with the spectrum of the source's Gram matrix."""
        values, vectors = context.require_source().uncentred_spectrum
        return _InverseGram(self, values.to(context.device, context.dtype), vectors.to(context.device, context.dtype))


def leading_count(values: Tensor, fraction: float) -> int:
    """Return how many of the descending ``values`` carry ``fraction`` of their sum.

    Example:
        >>> leading_count(torch.tensor([6.0, 3.0, 1.0]), 0.8)
        2
    """
    carried = values.double().cumsum(0)
    return min(int((carried < fraction * carried[-1]).sum()) + 1, len(values))


def numerical_rank(values: Tensor) -> int:
    """Return how many of the descending eigenvalues are above the rounding error of the largest."""
    return int((values > values[0] * len(values) * torch.finfo(values.dtype).eps).sum())


class _InverseGram(Rule):
    def __init__(self, method: DareGram, values: Tensor, vectors: Tensor) -> None:
        self.method = method
        self.values = values
        self.vectors = vectors
        self.least = leading_count(values, method.explained)
        self.rank = numerical_rank(values)

    def update(self, batch: Batch) -> Tensor | Skip:
        """Return the distance between the inverse Gram matrices of batch and source, or skip the batch."""
        features = batch.features.to(self.values.dtype)
        try:
            # Of the features, not of their Gram matrix, whose rounding errors are squared.
            vectors, singular, _ = stable_svd(features.T)
        except LinAlgError:
            return Skip("the batch's singular value decomposition did not converge")
        values = singular.square() / len(features)
        known = values.detach()
        count = min(max(self.least, leading_count(known, self.method.explained)), self.rank, numerical_rank(known))
        if not count:
            return Skip("all features of the batch are 0")
        inverse = truncated_inverse(features, vectors, values, count)
        kept = self.vectors[:, :count]
        inverse0 = (kept / self.values[:count]) @ kept.T
        angle = (1 - column_cosines(inverse, inverse0)).mean()
        scale: Tensor = torch.linalg.vector_norm(values[:count] - self.values[:count]) / count
        return self.method.angle * angle + self.method.scale * scale
