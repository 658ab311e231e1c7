"""Normality of raw and of projected feature dimensions, which alignment assumes to be Gaussian."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regtta.experiments.analysis.features import finite_features, varying
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.statistics import SourceStatistics

LILLIEFORS_5_PERCENT = 0.886  # critical value × √N of Lilliefors' test at the 5 % level, for N > 30


@dataclass(frozen=True, eq=False)
class Shapes(Report):
    """Deviation of each of M dimensions from the Gaussian of the same mean and variance; all 0 for a Gaussian.

    Attributes:
        skewness: ``E[((x − m)/s)³]``, (M,).
        kurtosis: excess kurtosis ``E[((x − m)/s)⁴] − 3``, (M,).
        distance: Kolmogorov–Smirnov distance ``max |F(x) − Φ((x − m)/s)|``, (M,), between 0 and 1.
    """

    skewness: Array
    kurtosis: Array
    distance: Array


@dataclass(frozen=True)
class ShapeSummary:
    """Summary of :class:`Shapes` over dimensions.

    Attributes:
        dimensions: number of dimensions.
        skewness: median absolute skewness.
        kurtosis: median absolute excess kurtosis.
        distance: median Kolmogorov–Smirnov distance.
        gaussian_share: share of dimensions for which normality is not rejected at the 5 % level.
    """

    dimensions: int
    skewness: float
    kurtosis: float
    distance: float
    gaussian_share: float


@dataclass(frozen=True, eq=False)
class NormalityReport(Report):
    """Comparison of the normality of raw and of projected dimensions.

    Attributes:
        count: number of samples N.
        critical: critical distance at the 5 % level, ``0.886 / √N``.
        raw: shapes of the raw dimensions that vary.
        projected: shapes of the leading directions.
        raw_summary: medians of ``raw``.
        projected_summary: medians of ``projected``.
        nearer: probability that a randomly chosen projected dimension is closer to a Gaussian than a randomly chosen
            raw one. The paper's claim holds for these features if it is above 0.5.
    """

    count: int
    critical: float
    raw: Shapes
    projected: Shapes
    raw_summary: ShapeSummary
    projected_summary: ShapeSummary
    nearer: float


def normality_report(source: SourceStatistics, features: Tensor, *, k: int = 100) -> NormalityReport:
    """Compare raw dimensions of ``features`` (N, D) with their projections onto the leading source directions.

    Args:
        source: source statistics that define the mean and the directions.
        features: finite features, usually of the target, with at least two rows.
        k: number of leading directions, at most the rank.

    Example:
        >>> import regtta
        >>> bent = torch.randn(500, 8, generator=torch.Generator().manual_seed(0)).relu()
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(8, 1)), [bent])
        >>> report = normality_report(source, bent)
        >>> report.raw_summary.distance > report.projected_summary.distance, report.nearer > 0.5
        (True, True)
    """
    rows = finite_features(source, features)
    raw, projected = shapes_of(rows[:, varying(rows)]), shapes_of(source.top(min(k, source.rank)).project(rows))
    critical = LILLIEFORS_5_PERCENT / len(rows) ** 0.5
    return NormalityReport(
        count=len(rows),
        critical=critical,
        raw=raw,
        projected=projected,
        raw_summary=_summary(raw, critical),
        projected_summary=_summary(projected, critical),
        nearer=_chance_below(projected.distance, raw.distance),
    )


def shapes_of(values: Tensor) -> Shapes:
    """Compute the shape of each column of ``values`` (N, M); NaN for a constant column.

    Example:
        >>> shapes_of(torch.tensor([[0.0], [0.0], [0.0], [4.0]])).skewness.round(3)
        array([1.155])
    """
    values = values.detach().cpu().double()
    count = len(values)
    centred = values - values.mean(dim=0)
    # Skewness and kurtosis use the biased standard deviation; the Gaussian is fitted with the unbiased one.
    deviation = centred.square().mean(dim=0).sqrt()
    unit = centred / torch.where(varying(values), deviation, torch.nan)
    expected = torch.special.ndtr((unit * ((count - 1) / count) ** 0.5).sort(dim=0).values)
    steps = torch.arange(count + 1, dtype=torch.float64).unsqueeze(1) / count
    gaps = torch.stack([steps[1:] - expected, expected - steps[:-1]])
    return Shapes(
        skewness=array((unit**3).mean(dim=0)),
        kurtosis=array((unit**4).mean(dim=0) - 3),
        distance=array(gaps.amax(dim=(0, 1))),
    )


def _summary(shapes: Shapes, critical: float) -> ShapeSummary:
    return ShapeSummary(
        dimensions=len(shapes.distance),
        skewness=_median(np.abs(shapes.skewness)),
        kurtosis=_median(np.abs(shapes.kurtosis)),
        distance=_median(shapes.distance),
        gaussian_share=float((shapes.distance <= critical).mean()) if len(shapes.distance) else float("nan"),
    )


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _chance_below(first: Array, second: Array) -> float:
    """Return the probability that an element of ``first`` is below one of ``second``; ties count half."""
    if not len(first) or not len(second):
        return float("nan")
    below = (first[:, None] < second).mean() + (first[:, None] == second).mean() / 2
    return float(below)
