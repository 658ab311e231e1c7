"""Test of whether a shift of tabular inputs is one of single sensors or one of the population behind them.

A faulty sensor reads ``x'_i = g_i x_i + o_i + ε_i``: a wrong gain, a wrong offset, independent noise, or a constant
(``g_i = 0``). Any such faults change the covariance of two columns only by their gains, ``Σ'_ij = g_i g_j Σ_ij``.
Another season, region or machine changes how the columns depend on each other, which no gains explain.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MIN_COLUMNS = 4  # with fewer, gains explain any covariance
_ITERATIONS, _CONVERGED = 2000, 1e-7  # most fits converge within a hundred
_DEAD = 1e-6  # variance, relative to the source, below which a column is constant
# Standard deviation, relative to the source, below which a column has shrunk. No sensor does that without becoming
# constant, but a region does it to its coordinates. One such column may be of rare events, such as rain.
_SHRUNK, _MAX_SHRUNK = 0.2, 1


@dataclass(frozen=True)
class SensorFaults:
    """Result of :func:`fit_sensor_faults`.

    Attributes:
        gains: ``(C,)`` estimated gain of each column; 0 for a column that has become constant.
        residual: root mean square, over all pairs of columns, of the correlations that the gains leave unexplained,
            less its expectation due to sampling noise.
        limit: largest residual that sampling noise gives with few exceptions, for a tolerance of 0.
        columns: number of columns that vary both on the source and in the stream.
        shrunk: number of these whose standard deviation is below a fifth of that on the source.
    """

    gains: Tensor
    residual: float
    limit: float
    columns: int
    shrunk: int = 0

    def explain(self, tolerance: float) -> bool:
        """Return True if faults of single sensors explain the covariance, up to ``tolerance`` and sampling noise."""
        if self.shrunk > _MAX_SHRUNK:
            return False
        return self.columns < MIN_COLUMNS or self.residual <= math.hypot(tolerance, self.limit)


def fit_sensor_faults(source: Tensor, target: Tensor, *, source_count: float, target_count: float) -> SensorFaults:
    """Fit ``target_ij ≈ g_i g_j source_ij`` to all pairs of columns by least squares.

    Correlations of n samples have a variance of about 1/n. The residual is therefore compared with
    ``ν = 1/n_source + 1/n_target``, and its mean square over P pairs deviates from ν by about ``ν √(2/P)``; the limit
    is three times that.

    Args:
        source: ``(C, C)`` covariance of the source inputs, float64.
        target: ``(C, C)`` covariance of recent inputs, in the same units.
        source_count: number of samples behind ``source``.
        target_count: effective number of samples behind ``target``.

    Example:
        >>> source = torch.full((5, 5), 0.5, dtype=torch.float64) + torch.eye(5) / 2
        >>> gains = torch.tensor([1.4, 1.0, 1.0, 0.5, 1.0], dtype=torch.float64)
        >>> noise = torch.diag(torch.tensor([0.0, 0.7, 0.0, 0.0, 0.0]))
        >>> target = source * torch.outer(gains, gains) + noise
        >>> found = fit_sensor_faults(source, target, source_count=1e6, target_count=1e6)
        >>> [round(gain, 2) for gain in found.gains.tolist()], found.explain(tolerance=0.04)
        ([1.4, 1.0, 1.0, 0.5, 1.0], True)
    """
    spread = source.diagonal().clamp_min(0)
    varies = (spread > 0) & (target.diagonal() > _DEAD * spread)
    gains = torch.zeros_like(spread)
    columns = int(varies.sum())
    if columns < 2:
        return SensorFaults(gains, 0.0, 0.0, columns)
    scale = spread[varies].sqrt()
    units = torch.outer(scale, scale)
    before, now = (matrix[varies][:, varies] / units for matrix in (source, target))
    noise = 1 / source_count + 1 / target_count
    gains[varies] = found = _fit_gains(before, now, ridge=columns * noise)
    off = 1 - torch.eye(columns, dtype=source.dtype)
    # Of a column that hardly varies in the stream, such as rain in a dry week, correlations are not measurable.
    sizes = now.diagonal().clamp_min(1).sqrt()
    unexplained = off * (now - torch.outer(found, found) * before) / torch.outer(sizes, sizes)
    pairs = columns * (columns - 1)  # each of them twice
    residual = math.sqrt(max(0.0, float(unexplained.square().sum()) / pairs - noise))
    shrunk = int((now.diagonal() < _SHRUNK**2).sum())
    return SensorFaults(gains, residual, math.sqrt(3 * noise * math.sqrt(4 / pairs)), columns, shrunk)


def _fit_gains(before: Tensor, now: Tensor, *, ridge: float) -> Tensor:
    """Return gains ``(C,)`` that minimise ``Σ_{i≠j} (now_ij − g_i g_j before_ij)²``, drawn to 1 where undetermined.

    All gains are updated at once, each halfway to its least-squares value given the others: full steps would alternate
    between gains that are too large and too small.
    """
    off = 1 - np.eye(len(before))
    first, second = before.numpy() * off, now.numpy() * off  # NumPy is several times faster on matrices this small
    gains = now.diagonal().sqrt().numpy().copy()
    for _ in range(_ITERATIONS):
        slopes = first * gains
        wanted = ((slopes * second).sum(axis=1) + ridge) / (np.square(slopes).sum(axis=1) + ridge)
        step = (wanted - gains) / 2
        gains += step
        if np.abs(step).max() <= _CONVERGED * np.abs(gains).max():
            break
    return torch.from_numpy(gains)
