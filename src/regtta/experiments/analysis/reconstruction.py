"""Whether the target's features still lie in the source's subspace: how well source directions rebuild them."""

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

_ROWS_AT_ONCE = 1024  # a wide table squared in one go would not fit


@dataclass(frozen=True, eq=False)
class Reconstruction(Report):
    """Mean distance between features and what ``n`` source directions make of them.

    Attributes:
        bases: (M,) the numbers ``n`` of directions.
        errors: (M,) by method, in the unit of the features; NaN where a method's features are not finite.
        counts: samples, by method.
        rank: of the source features.
    """

    bases: NDArray[np.int64]
    errors: Mapping[str, Array]
    counts: Mapping[str, int]
    rank: int


def reconstruction(
    source: SourceStatistics, features: Mapping[str, Tensor], *, bases: Sequence[int] | None = None
) -> Reconstruction:
    """Rebuild features from the leading source directions: ``L(n) = mean ‖z_r − z‖₂``.

    ``z_r = μ + Σ_{d≤n} ((z − μ)ᵀ v_d) v_d``. With ``n = 0`` it is the mean itself, with ``n = D`` the feature.

    Args:
        source: whose mean and directions.
        features: (N, D) by method, of the model after adapting.
        bases: the numbers ``n`` to try; by default all from 0 to D.

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
            f"Expected bases between 0 and {source.dimensions}, the width of the features, found {bases!r}."
        )
    rows = {name: checked_features(source, table) for name, table in features.items()}
    return Reconstruction(
        bases=wanted,
        errors={name: _errors(source, table)[wanted] for name, table in rows.items()},
        counts={name: len(table) for name, table in rows.items()},
        rank=source.rank,
    )


def _errors(source: SourceStatistics, features: Tensor) -> Array:
    """(D + 1,) the mean error for every n.

    The basis is orthonormal and whole, so what n directions leave over is the length of the other coordinates. Added
    up from the last, small errors come out right; as a difference of large lengths they would not.
    """
    total = torch.zeros(source.dimensions + 1, dtype=torch.float64)
    for rows in torch.split(features, _ROWS_AT_ONCE):
        squares = ((rows - source.mean) @ source.basis) ** 2
        left_over = squares.flip(1).cumsum(1).flip(1).sqrt()
        total[:-1] += left_over.sum(0)
    return array(total / len(features))
