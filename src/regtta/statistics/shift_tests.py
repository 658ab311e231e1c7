"""Tests on whitened features: is there a shift, is it explained by labels, is the stream stationary."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from regtta.statistics.moments import EwmaMoments


def chi2_critical_value(dimensions: float, noncentrality: float, level: float) -> float:
    """Return the value that a noncentral χ² variable of ``dimensions`` exceeds with probability ``level``.

    ``r (1 − 2(1+b)/(9r) + z √(2(1+b)/(9r)))³`` with ``r = k + δ`` and ``b = δ/r``.

    Example:
        >>> round(chi2_critical_value(10, 0.0, 0.05), 1)
        18.3
    """
    total = dimensions + noncentrality
    spread = 2 * (1 + noncentrality / total) / (9 * total)
    return total * (1 - spread + _normal_quantile(level) * math.sqrt(spread)) ** 3


def f_critical_value(above: float, below: float, level: float) -> float:
    """Return the value that an F variable with ``above`` and ``below`` degrees of freedom exceeds with ``level``.

    Returns infinity if the denominator has too few degrees of freedom for the approximation.

    Example:
        >>> round(f_critical_value(7, 120, 0.05), 1)
        2.1
    """
    # z = ((1−b) x − (1−a)) / √(b x² + a) for the cube root x of F, solved for x.
    a, b, z2 = 2 / (9 * above), 2 / (9 * below), _normal_quantile(level) ** 2
    first, second = (1 - b) ** 2 - z2 * b, (1 - a) * (1 - b)
    if first <= 0 or b >= 0.1:
        return math.inf
    root = math.sqrt(second**2 - first * ((1 - a) ** 2 - z2 * a))
    return float(((second + root) / first) ** 3)


def _normal_quantile(level: float) -> float:
    return -NormalDist().inv_cdf(level)


_TINY = 1e-300


@dataclass(frozen=True)
class ShiftTest:
    """Test statistics of a shift, each divided by its critical value: above 1 the shift is significant.

    Attributes:
        mean: statistic of the means.
        spread: statistic of the second moments.
    """

    mean: float
    spread: float

    @property
    def shifted(self) -> bool:
        """True if either statistic is significant."""
        return max(self.mean, self.spread) > 1


def shift_test(
    recent: EwmaMoments, *, source_count: int, level: float, tolerance: float, inflation: Tensor | None = None
) -> ShiftTest:
    """Test whether whitened means and second moments (K,) deviate from 0 and 1 by more than ``tolerance``.

    Under the null hypothesis the means are within ``tolerance`` source standard deviations (root mean square over the
    directions) and the variances within twice that. ``T = Σ m_d²`` is then at most about ``χ²_K(nKτ²) / n``, with
    ``1/n = 1/n_recent + 1/n_source``. The second moments are correlated (a brighter image has larger features
    everywhere), so their statistic is compared with a scaled χ² with matched first two moments (Satterthwaite).

    Autocorrelated samples are worth fewer: the variances of the moments of direction d are multiplied by its
    integrated autocorrelation time ``τ_d``, and T is compared with a scaled χ² as well. For the second moments this is
    an upper bound, since squares of a Gaussian series are less correlated than its values.

    Args:
        recent: moments of whitened features.
        source_count: number of samples of the source statistics.
        level: probability of a false alarm, over both tests.
        tolerance: shift, in source standard deviations, that is too small to matter.
        inflation: autocorrelation times (K,) of the directions, from 1; by default, samples are independent.
    """
    mean, square = recent.mean, recent.square
    dimensions = len(mean)
    count = 1 / (1 / recent.count + 1 / source_count)
    times = None if inflation is None or not bool((inflation > 1).any()) else inflation.to(mean)
    factor, freedom = _scaled_chi2(dimensions, times)
    far = count * dimensions * tolerance**2 / factor
    by_mean = factor * chi2_critical_value(freedom, far, level / 2) / count
    covariance = recent.covariance_of_squares
    if times is not None:
        covariance *= times.outer(times).sqrt()
    # At least a Gaussian's variance: a few samples of a heavy-tailed distribution underestimate theirs.
    covariance.diagonal().clamp_min_(2.0)
    entries, gap = covariance.flatten(), square - 1
    # One device synchronisation for all four.
    found = [covariance.trace(), entries.dot(entries), mean.dot(mean), gap.dot(gap)]
    trace, squared, of_mean, of_square = torch.stack(found).tolist()
    if not math.isfinite(squared):  # the shift overflows float64
        return ShiftTest(math.inf, math.inf)
    scale, freedom = squared / trace, max(trace**2 / squared, 1.0)
    far = count * dimensions * (2 * tolerance) ** 2 / scale
    by_square = scale * chi2_critical_value(freedom, far, level / 2) / count
    return ShiftTest(of_mean / by_mean, of_square / by_square)


def _scaled_chi2(dimensions: int, times: Tensor | None) -> tuple[float, float]:
    """Return scale and degrees of freedom of the χ² that matches ``Σ_d τ_d χ²_1`` in mean and variance."""
    if times is None:
        return 1.0, float(dimensions)
    total, squared = torch.stack([times.sum(), times.dot(times)]).tolist()
    return squared / total, total**2 / squared


def min_reweighting_divergence(recent: EwmaMoments, inflation: Tensor | None = None) -> float:
    """Return the smallest χ² divergence of a reweighting of the source that explains the shift of whitened means.

    ``‖E[y]‖²``, minus its bias due to sampling noise (Bessel's inequality). A stream with
    one tenth of the source's labels needs at most 9, one with half of them at most 1.

    Args:
        recent: moments of whitened features.
        inflation: autocorrelation times (K,) of the directions, from 1; by default, samples are independent.
    """
    variance = recent.variance if inflation is None else recent.variance * inflation.to(recent.variance)
    return max(0.0, float((recent.mean**2).sum() - variance.sum() / recent.count))


def stationarity_statistic(values: Tensor, block: int, level: float, tolerance: float = 0.0) -> float:
    """Return the F statistic of a stationarity test divided by its critical value; above 1 is non-stationary.

    Analysis of variance over consecutive blocks of ``block`` rows, with variances summed over the columns. Correlated
    columns count as fewer (the participation ratio of their covariance within blocks).

    Args:
        values: (N, K) rows in order of arrival.
        block: number of rows per block.
        level: probability of a false alarm.
        tolerance: variance between blocks, relative to that within, that is too small to matter.

    Example:
        >>> stationarity_statistic(torch.arange(64.0)[:, None], 16, 0.001) > 1
        True
    """
    blocks = _Blocks(values, block)
    return blocks.over_critical_value(blocks.columns(), level, tolerance)


def is_nonstationary(values: Tensor, block: int, level: float, tolerance: float = 0.0) -> bool:
    """Return True if :func:`stationarity_statistic` is above 1, mostly without computing correlations."""
    blocks = _Blocks(values, block)
    ends = [blocks.over_critical_value(columns, level, tolerance) > 1 for columns in (1.0, float(values.shape[1]))]
    return ends[0] if ends[0] == ends[1] else blocks.over_critical_value(blocks.columns(), level, tolerance) > 1


class _Blocks:
    """Analysis of variance over consecutive blocks of rows (N, K); leading rows that fill no block are dropped."""

    def __init__(self, values: Tensor, block: int) -> None:
        self.size, self.count = block, len(values) // block
        rows = values[-self.count * block :].detach().double().reshape(self.count, block, -1)
        means = rows.mean(dim=1)
        self.residuals = (rows - means[:, None]).flatten(0, 1)
        entries = self.residuals.flatten()
        # One device synchronisation for both.
        squares, between = torch.stack([entries.dot(entries), means.var(dim=0).sum()]).tolist()
        self.within: float = max(squares / self._freedom, _TINY)
        self.between: float = block * between

    @property
    def _freedom(self) -> int:
        return self.count * (self.size - 1)

    def columns(self) -> float:
        """Return the effective number of uncorrelated columns."""
        entries = (self.residuals.T @ self.residuals).flatten().div_(self._freedom)
        square = self.within * self.within  # ``**`` raises an OverflowError where a product is infinite
        return max(1.0, square / max(float(entries.dot(entries)), _TINY))

    def over_critical_value(self, columns: float, level: float, tolerance: float) -> float:
        """Return F divided by its critical value, which includes ``tolerance``, for so many effective columns."""
        limit = f_critical_value((self.count - 1) * columns, self._freedom * columns, level)
        return self.between / self.within / (limit + self.size * tolerance)
