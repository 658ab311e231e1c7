"""Tests of the hypothesis that recent samples are like the source's, from whitened moments alone."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regtta.quantiles import chi_square_limit, f_limit
from regtta.recent import RecentMoments


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
    mean, gap = recent.mean.numpy(), recent.square.numpy() - 1
    dimensions = len(mean)
    count = 1 / (1 / recent.count + 1 / source_count)
    by_mean = chi_square_limit(dimensions, count * dimensions * tolerance**2, level / 2) / count
    entries = recent.covariance_of_squares.numpy().reshape(-1)
    variances = entries[:: dimensions + 1]
    # A Gaussian's variance at the least: few samples of a heavy tail look as if they had none.
    np.maximum(variances, 2.0, out=variances)
    trace, squared = float(variances.sum()), float(entries @ entries)
    if not math.isfinite(squared):  # too far off for float64 to say how far
        return ShiftTest(math.inf, math.inf)
    scale, freedom = squared / trace, max(trace**2 / squared, 1.0)
    far = count * dimensions * (2 * tolerance) ** 2 / scale
    by_square = scale * chi_square_limit(freedom, far, level / 2) / count
    return ShiftTest(float(mean @ mean) / by_mean, float(gap @ gap) / by_square)


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
    blocks = len(values) // block
    rows = values[-blocks * block :].detach().to("cpu", torch.float64).numpy().reshape(blocks, block, -1)
    means = rows.mean(axis=1)
    residuals = (rows - means[:, None]).reshape(blocks * block, -1)
    entries = (residuals.T @ residuals / (blocks * (block - 1))).reshape(-1)
    within = max(float(entries[:: residuals.shape[1] + 1].sum()), 1e-300)
    columns = max(1.0, within**2 / max(float(entries @ entries), 1e-300))
    between = block * float(means.var(axis=0, ddof=1).sum())
    above, below = (blocks - 1) * columns, blocks * (block - 1) * columns
    return between / within / (f_limit(above, below, level) + block * tolerance)
