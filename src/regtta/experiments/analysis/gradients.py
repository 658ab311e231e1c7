"""Gradient norms of the subspace features with respect to the raw feature dimensions."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regtta.experiments.analysis.reports import Array, Report, array
from regtta.options import check_count
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class GradientNorms(Report):
    """Gradient norms ``s_d`` of all raw dimensions. Their squares add up to k.

    Attributes:
        k: number of directions of the subspace.
        norms: the norms, (D,), between 0 and 1.
        edges: bin edges of the histogram, (bins + 1,), from 0 to 1.
        counts: number of raw dimensions in each bin, (bins,).
    """

    k: int
    norms: Array
    edges: Array
    counts: NDArray[np.int64]


def gradient_norms(
    source: SourceStatistics, *, k: int | Literal["auto"] = 100, clip: bool = True, bins: int = 40
) -> GradientNorms:
    """Compute ``s_d = ‖∂z̃/∂z_d‖₂ = ‖[v_{1,d}, …, v_{k,d}]‖₂``, the norm of the d-th row of the basis.

    Args:
        source: source statistics of the features.
        k: number of leading directions; ``"auto"`` uses the rank.
        clip: limit ``k`` to the rank, as SSA does. Directions beyond the rank are arbitrary, and so are their norms.
        bins: number of histogram bins.

    Example:
        >>> import regtta
        >>> rows = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(2, 1)), [rows])
        >>> gradient_norms(source, k="auto").norms
        array([1., 0.])
    """
    check_count("bins", bins)
    wanted = min(k, source.rank) if clip and k != "auto" else k
    basis = source.top(wanted, clip=clip).basis
    norms = array(torch.linalg.vector_norm(basis, dim=1))
    # Rounding may put a norm just above 1, outside the last bin.
    counts, edges = np.histogram(norms.clip(0, 1), bins=bins, range=(0, 1))
    return GradientNorms(k=basis.shape[1], norms=norms, edges=edges, counts=counts)
