"""Histograms of single feature dimensions, raw and projected, with the Gaussian that alignment takes them for."""

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
    """One dimension.

    Attributes:
        name: what it is, such as ``"raw dimension 7"``.
        edges: (bins + 1,) of the bins.
        density: (bins,) whose area is 1.
        mean: of the Gaussian, the samples' own.
        sd: of the Gaussian, the samples' own (unbiased).
        skewness: zero for a Gaussian.
        kurtosis: excess, zero for a Gaussian.
        distance: Kolmogorov and Smirnov's, to that Gaussian.
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
    """Some raw dimensions, and some leading directions.

    Attributes:
        raw: of dimensions that vary.
        projected: of directions within the first k.
        count: samples.
        seed: of the draw of dimensions.
    """

    raw: tuple[Histogram, ...]
    projected: tuple[Histogram, ...]
    count: int
    seed: int


def feature_histograms(
    source: SourceStatistics, features: Tensor, *, shown: int = 3, k: int = 100, bins: int = 40, seed: int = 0
) -> FeatureHistograms:
    """Histograms of dimensions drawn at random, as in the paper: raw ones, and projections ``(z − μ)ᵀ v_d``.

    Args:
        source: whose directions.
        features: (N, D) finite, at least two rows.
        shown: how many of each kind; fewer where there are fewer.
        k: draw among so many leading directions, at most the rank.
        bins: of each histogram.
        seed: of the draw.

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
