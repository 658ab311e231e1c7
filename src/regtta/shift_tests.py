"""Tests of the hypothesis that recent samples are like the source's, from whitened moments alone."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.quantiles import chi_square_limit, f_limit
from regtta.recent import RecentMoments

_TINY = 1e-300


@dataclass(frozen=True)
class ShiftTest:
    """Statistics of a shift, each over the limit that chance exceeds at the level asked for: above 1 is a shift.

    Attributes:
        mean: of the means.
        spread: of the second moments.
    """

    mean: float
    spread: float

    @property
    def shifted(self) -> bool:
        """Whether either says so."""
        return max(self.mean, self.spread) > 1


def shift_test(recent: RecentMoments, *, source_count: int, level: float, tolerance: float) -> ShiftTest:
    """Whether whitened moments (K,) are further from 0 and 1 than ``tolerance`` and chance allow.

    Under the hypothesis the means are within ``tolerance`` source standard deviations (root mean square over the
    directions) and the variances within twice that. ``T = Σ m_d²`` is then at most about ``χ²_K(nKτ²) / n``, with
    ``1/n = 1/n_recent + 1/n_source``. The second moments vary together (a brighter image has larger features
    everywhere), so theirs is compared with the scaled χ² that has the same first two moments (Satterthwaite).

    Args:
        recent: of whitened features.
        source_count: samples behind the source's statistics.
        level: probability of a false alarm, over both tests.
        tolerance: a shift too small to matter.
    """
    mean, square = recent.mean, recent.square
    dimensions = len(mean)
    count = 1 / (1 / recent.count + 1 / source_count)
    by_mean = chi_square_limit(dimensions, count * dimensions * tolerance**2, level / 2) / count
    covariance = recent.covariance_of_squares
    # A Gaussian's variance at the least: few samples of a heavy tail look as if they had none.
    covariance.diagonal().clamp_min_(2.0)
    entries, gap = covariance.flatten(), square - 1
    # All four in one read from the device.
    found = [covariance.trace(), entries.dot(entries), mean.dot(mean), gap.dot(gap)]
    trace, squared, of_mean, of_square = torch.stack(found).tolist()
    if not math.isfinite(squared):  # too far off for float64 to say how far
        return ShiftTest(math.inf, math.inf)
    scale, freedom = squared / trace, max(trace**2 / squared, 1.0)
    far = count * dimensions * (2 * tolerance) ** 2 / scale
    by_square = scale * chi_square_limit(freedom, far, level / 2) / count
    return ShiftTest(of_mean / by_mean, of_square / by_square)


def reweighting_needed(recent: RecentMoments) -> float:
    """The least χ² divergence of a reweighting of the source that could have moved whitened means this far.

    ``‖E[y]‖²``, less what chance adds to it (Bessel's inequality; see :mod:`regtta.whitening`). A stream of only one
    in ten of the source's labels needs 9 at most, one of half of them 1.
    """
    return max(0.0, float((recent.mean**2).sum() - recent.variance.sum() / recent.count))


def steadiness(values: Tensor, block: int, level: float, tolerance: float = 0.0) -> float:
    """Whether rows (N, K) in order of arrival could have come in any order: F over its limit, above 1 if not.

    Analysis of variance over consecutive blocks of ``block`` rows, variances summed over the columns. Columns that vary
    together count as fewer (the participation ratio of their covariance within blocks).

    Args:
        values: in order of arrival.
        block: rows a block.
        level: probability of a false alarm.
        tolerance: variance between blocks, in units of that within, too small to matter.

    Example:
        >>> steadiness(torch.arange(64.0)[:, None], 16, 0.001) > 1
        True
    """
    blocks = _Blocks(values, block)
    return blocks.over_limit(blocks.columns(), level, tolerance)


def unsteady(values: Tensor, block: int, level: float, tolerance: float = 0.0) -> bool:
    """Whether :func:`steadiness` is above 1, which is mostly plain before it is known how columns vary together."""
    blocks = _Blocks(values, block)
    ends = [blocks.over_limit(columns, level, tolerance) > 1 for columns in (1.0, float(values.shape[1]))]
    return ends[0] if ends[0] == ends[1] else blocks.over_limit(blocks.columns(), level, tolerance) > 1


class _Blocks:
    """Rows (N, K) in consecutive blocks, the last at the end."""

    def __init__(self, values: Tensor, block: int) -> None:
        self.size, self.count = block, len(values) // block
        rows = values[-self.count * block :].detach().double().reshape(self.count, block, -1)
        means = rows.mean(dim=1)
        self.residuals = (rows - means[:, None]).flatten(0, 1)
        entries = self.residuals.flatten()
        # Both in one read from the device.
        squares, between = torch.stack([entries.dot(entries), means.var(dim=0).sum()]).tolist()
        self.within: float = max(squares / self._freedom, _TINY)
        self.between: float = block * between

    @property
    def _freedom(self) -> int:
        return self.count * (self.size - 1)

    def columns(self) -> float:
        """How many columns that vary apart would vary as these do."""
        entries = (self.residuals.T @ self.residuals).flatten().div_(self._freedom)
        square = self.within * self.within  # ``**`` raises where a product is just infinite
        return max(1.0, square / max(float(entries.dot(entries)), _TINY))

    def over_limit(self, columns: float, level: float, tolerance: float) -> float:
        """F over what chance and ``tolerance`` allow for so many columns."""
        limit = f_limit((self.count - 1) * columns, self._freedom * columns, level)
        return self.between / self.within / (limit + self.size * tolerance)
