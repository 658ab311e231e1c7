"""How much each raw feature dimension moves the subspace."""

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
    """The norms ``s_d`` of all raw dimensions. Their squares add up to k.

    Attributes:
        k: directions of the subspace.
        norms: (D,) between 0 and 1.
        edges: (bins + 1,) of the histogram, from 0 to 1.
        counts: (bins,) raw dimensions in each bin.
    """

    k: int
    norms: Array
    edges: Array
    counts: NDArray[np.int64]


def gradient_norms(
    source: SourceStatistics, *, k: int | Literal["auto"] = 100, clip: bool = True, bins: int = 40
) -> GradientNorms:
    """``s_d = ‖∂z̃/∂z_d‖₂ = ‖[v_{1,d}, …, v_{k,d}]‖₂``, the length of the d-th row of the basis.

    Args:
        source: statistics of the features.
        k: how many leading directions; ``"auto"`` takes the rank.
        clip: cut ``k`` to the rank, as SSA does. Beyond it directions are arbitrary, and so are the norms.
        bins: of the histogram.

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
    # Rounding may put a norm just above 1, outside of the last bin.
    counts, edges = np.histogram(norms.clip(0, 1), bins=bins, range=(0, 1))
    return GradientNorms(k=basis.shape[1], norms=norms, edges=edges, counts=counts)
