"""Histograms of single feature dimensions, raw and projected, with the Gaussian that alignment assumes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regtta.experiments.analysis.features import drawn, finite_features, varying
from regtta.experiments.analysis.normality import shapes_of
from regtta.experiments.analysis.reports import Array, Report
from regtta.options import check_count
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class Histogram(Report):
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
class FeatureHistograms(Report):
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
    check_count("bins", bins)
    rows = finite_features(source, features)
    projected = source.top(min(k, source.rank)).project(rows)
    raw_chosen = drawn(varying(rows).nonzero().flatten(), shown, seed).sort().values.tolist()
    directions = drawn(torch.arange(projected.shape[1]), shown, seed).sort().values.tolist()
    return FeatureHistograms(
        raw=_histograms("raw dimension", rows, raw_chosen, bins),
        projected=_histograms("direction", projected, directions, bins),
        count=len(rows),
        seed=seed,
    )


def _histograms(kind: str, table: Tensor, columns: Sequence[int], bins: int) -> tuple[Histogram, ...]:
    shapes = shapes_of(table[:, columns])
    histograms = []
    for place, column in enumerate(columns):
        values = table[:, column].numpy()
        density, edges = np.histogram(values, bins=bins, density=True)
        histograms.append(
            Histogram(
                name=f"{kind} {column}",
                edges=edges,
                density=density,
                mean=float(values.mean()),
                sd=float(values.std(ddof=1)),
                skewness=float(shapes.skewness[place]),
                kurtosis=float(shapes.kurtosis[place]),
                distance=float(shapes.distance[place]),
            )
        )
    return tuple(histograms)
