"""Exact optimal-transport distance between two point clouds."""

from typing import Literal, get_args

import numpy as np
from torch import Tensor

from regtta.errors import BatchError
from regtta.experiments.analysis.reports import array
from regtta.optional_imports import import_optional
from regtta.options import check_choice

Cost = Literal["euclidean", "sqeuclidean"]
_ITERATIONS = 1_000_000  # of the exact solver; POT's default can be too few for a thousand points


def transport_distance(first: Tensor, second: Tensor, *, cost: Cost = "euclidean") -> float:
    """Compute the exact optimal-transport distance ``min_π Σ π_ij c(x_i, y_j)`` between uniformly weighted points.

    Args:
        first: points, (N, C).
        second: points, (M, C).
        cost: ground cost. ``"euclidean"`` gives the 1-Wasserstein distance, in the unit of the points;
            ``"sqeuclidean"`` the squared 2-Wasserstein distance.

    Returns:
        The distance; NaN if a point is not finite.

    Example:
        >>> import torch
        >>> round(transport_distance(torch.tensor([[0.0], [1.0]]), torch.tensor([[4.0], [3.0]])), 6)
        3.0
    """
    check_choice("cost", cost, get_args(Cost))
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1] or not len(first) or not len(second):
        raise BatchError(
            f"Expected points of shapes (N, C) and (M, C), found {tuple(first.shape)} and {tuple(second.shape)}. "
            "Pass one row per point, with the same columns in both."
        )
    ot = import_optional("ot", "analysis", "The optimal-transport distance")
    x, y = array(first), array(second)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return float("nan")
    return float(ot.emd2(_equal(len(x)), _equal(len(y)), ot.dist(x, y, metric=cost), numItermax=_ITERATIONS))


def _equal(count: int) -> np.ndarray:
    return np.full(count, 1 / count)
