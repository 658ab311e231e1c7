"""Reconstruction error of target features from the leading source directions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regtta.errors import OptionError
from regtta.experiments.analysis.features import checked_features
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.statistics import SourceStatistics

_ROWS_AT_ONCE = 1024  # bounds the memory for wide features


@dataclass(frozen=True, eq=False)
class Reconstruction(Report):
    """Mean reconstruction error of features from ``n`` source directions.

    Attributes:
        bases: the numbers ``n`` of directions, (M,).
        errors: mean errors by method, each (M,), in feature units; NaN if the features are not finite.
        counts: number of samples by method.
        rank: rank of the source features.
    """

    bases: NDArray[np.int64]
    errors: Mapping[str, Array]
    counts: Mapping[str, int]
    rank: int


def reconstruction(
    source: SourceStatistics, features: Mapping[str, Tensor], *, bases: Sequence[int] | None = None
) -> Reconstruction:
    """Compute the error ``L(n) = mean ‖z_r − z‖₂`` of reconstructing features from ``n`` leading source directions.

    The reconstruction is ``z_r = μ + Σ_{d≤n} ((z − μ)ᵀ v_d) v_d``: the mean for ``n = 0``, the feature for ``n = D``.

    Args:
        source: source statistics that define the mean and the directions.
        features: features of the adapted model by method, each (N, D).
        bases: the numbers ``n`` of directions; by default all from 0 to D.

    Example:
        >>> import regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1))
        >>> source = regtta.collect(model, [torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])])
        >>> reconstruction(source, {"SSA": torch.tensor([[3.0, 4.0]])}).errors["SSA"]
        array([5., 4., 0.])
    """
    wanted = np.arange(source.dimensions + 1) if bases is None else np.asarray(bases, dtype=np.int64)
    if len(wanted) == 0 or wanted.min() < 0 or wanted.max() > source.dimensions:
        raise OptionError(
            f"Expected one or more bases between 0 and {source.dimensions}, the width of the features, found {bases!r}."
        )
    rows = {name: checked_features(source, table) for name, table in features.items()}
    return Reconstruction(
        bases=wanted,
        errors={name: _errors(source, table)[wanted] for name, table in rows.items()},
        counts={name: len(table) for name, table in rows.items()},
        rank=source.rank,
    )


def _errors(source: SourceStatistics, features: Tensor) -> Array:
    """Return the mean error for n = 0, …, D, (D + 1,).

    The basis is complete and orthonormal, so the residual of n directions is the norm of the other coordinates.
    Summing them from the last one avoids the cancellation of a difference of large norms.
    """
    total = torch.zeros(source.dimensions + 1, dtype=torch.float64)
    for rows in torch.split(features, _ROWS_AT_ONCE):
        squares = ((rows - source.mean) @ source.basis) ** 2
        left_over = squares.flip(1).cumsum(1).flip(1).sqrt()
        total[:-1] += left_over.sum(0)
    return array(total / len(features))
