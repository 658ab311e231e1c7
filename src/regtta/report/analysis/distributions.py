"""Histograms of features along directions of the source, and how close they are to a normal distribution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regtta.options import check_positive_int
from regtta.report.analysis.base import AnalysisResult, Array, to_numpy
from regtta.report.analysis.feature_extraction import subsample, validate_finite_features, varying_columns
from regtta.statistics import SourceStatistics

LILLIEFORS_5_PERCENT = 0.886  # critical value × √N of Lilliefors' test at the 5 % level, for N > 30


@dataclass(frozen=True, eq=False)
class Shapes(AnalysisResult):
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
class NormalityReport(AnalysisResult):
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
    rows = validate_finite_features(source, features)
    raw, projected = (
        compute_shapes(rows[:, varying_columns(rows)]),
        compute_shapes(source.top(min(k, source.rank)).project(rows)),
    )
    critical = LILLIEFORS_5_PERCENT / len(rows) ** 0.5
    return NormalityReport(
        count=len(rows),
        critical=critical,
        raw=raw,
        projected=projected,
        raw_summary=_summarize(raw, critical),
        projected_summary=_summarize(projected, critical),
        nearer=_probability_below(projected.distance, raw.distance),
    )


def compute_shapes(values: Tensor) -> Shapes:
    """Compute the shape of each column of ``values`` (N, M); NaN for a constant column.

    Example:
        >>> compute_shapes(torch.tensor([[0.0], [0.0], [0.0], [4.0]])).skewness.round(3)
        array([1.155])
    """
    values = values.detach().cpu().double()
    count = len(values)
    centred = values - values.mean(dim=0)
    # Skewness and kurtosis use the biased standard deviation; the Gaussian is fitted with the unbiased one.
    deviation = centred.square().mean(dim=0).sqrt()
    unit = centred / torch.where(varying_columns(values), deviation, torch.nan)
    expected = torch.special.ndtr((unit * ((count - 1) / count) ** 0.5).sort(dim=0).values)
    steps = torch.arange(count + 1, dtype=torch.float64).unsqueeze(1) / count
    gaps = torch.stack([steps[1:] - expected, expected - steps[:-1]])
    return Shapes(
        skewness=to_numpy((unit**3).mean(dim=0)),
        kurtosis=to_numpy((unit**4).mean(dim=0) - 3),
        distance=to_numpy(gaps.amax(dim=(0, 1))),
    )


def _summarize(shapes: Shapes, critical: float) -> ShapeSummary:
    return ShapeSummary(
        dimensions=len(shapes.distance),
        skewness=_median(np.abs(shapes.skewness)),
        kurtosis=_median(np.abs(shapes.kurtosis)),
        distance=_median(shapes.distance),
        gaussian_share=float((shapes.distance <= critical).mean()) if len(shapes.distance) else float("nan"),
    )


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _probability_below(first: Array, second: Array) -> float:
    """Return the probability that an element of ``first`` is below one of ``second``; ties count half."""
    if not len(first) or not len(second):
        return float("nan")
    below = (first[:, None] < second).mean() + (first[:, None] == second).mean() / 2
    return float(below)


@dataclass(frozen=True, eq=False)
class Histogram(AnalysisResult):
    """Histogram of one dimension, with the moments of its samples.

    Attributes:
        name: name of the dimension, such as ``"raw dimension 7"``.
        edges: bin edges, (bins + 1,).
        density: density in each bin, (bins,), of total area 1.
        mean: sample mean, also the mean of the fitted Gaussian.
        sd: unbiased sample standard deviation, also that of the fitted Gaussian.
        skewness: skewness; 0 for a Gaussian.
        kurtosis: excess kurtosis; 0 for a Gaussian.
        distance: Kolmogorov–Smirnov distance to the fitted Gaussian.
    """

    name: str
    edges: Array
    density: Array
    mean: float
    sd: float
    skewness: float
    kurtosis: float
    distance: float


@dataclass(frozen=True, eq=False)
class FeatureHistograms(AnalysisResult):
    """Histograms of a sample of raw dimensions and of leading directions.

    Attributes:
        raw: histograms of raw dimensions that vary.
        projected: histograms of directions among the first k.
        count: number of samples.
        seed: seed of the choice of dimensions.
    """

    raw: tuple[Histogram, ...]
    projected: tuple[Histogram, ...]
    count: int
    seed: int


def feature_histograms(
    source: SourceStatistics, features: Tensor, *, shown: int = 3, k: int = 100, bins: int = 40, seed: int = 0
) -> FeatureHistograms:
    """Compute histograms of randomly chosen raw dimensions and projections ``(z − μ)ᵀ v_d``, as in the paper.

    Args:
        source: source statistics that define the mean and the directions.
        features: finite features, (N, D), with at least two rows.
        shown: maximum number of histograms of each kind.
        k: number of leading directions to choose from, at most the rank.
        bins: number of bins of each histogram.
        seed: seed of the choice.

    Example:
        >>> import regtta
        >>> rows = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(5, 1)), [rows])
        >>> [histogram.name for histogram in feature_histograms(source, rows, shown=2).raw]
        ['raw dimension 0', 'raw dimension 4']
    """
    check_positive_int("bins", bins)
    rows = validate_finite_features(source, features)
    projected = source.top(min(k, source.rank)).project(rows)
    raw_chosen = subsample(varying_columns(rows).nonzero().flatten(), shown, seed).sort().values.tolist()
    directions = subsample(torch.arange(projected.shape[1]), shown, seed).sort().values.tolist()
    return FeatureHistograms(
        raw=_histograms("raw dimension", rows, raw_chosen, bins),
        projected=_histograms("direction", projected, directions, bins),
        count=len(rows),
        seed=seed,
    )


def _histograms(kind: str, table: Tensor, columns: Sequence[int], bins: int) -> tuple[Histogram, ...]:
    shapes = compute_shapes(table[:, columns])
    histograms = []
    for index, column in enumerate(columns):
        values = table[:, column].numpy()
        density, edges = np.histogram(values, bins=bins, density=True)
        histograms.append(
            Histogram(
                name=f"{kind} {column}",
                edges=edges,
                density=density,
                mean=float(values.mean()),
                sd=float(values.std(ddof=1)),
                skewness=float(shapes.skewness[index]),
                kurtosis=float(shapes.kurtosis[index]),
                distance=float(shapes.distance[index]),
            )
        )
    return tuple(histograms)
