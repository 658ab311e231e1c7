"""Two-dimensional views of feature vectors by PCA or UMAP, and optimal-transport distances between them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from regtta.errors import BatchError, OptionError
from regtta.optional_imports import import_optional
from regtta.options import check_choice, check_positive_int
from regtta.report.analysis.base import AnalysisResult, Array, to_numpy
from regtta.report.analysis.feature_extraction import subsample, validate_features, validate_finite_features
from regtta.statistics import SourceStatistics

Cost = Literal["euclidean", "sqeuclidean"]
_MAX_ITERATIONS = 1_000_000  # of the exact solver; POT's default can be too few for a thousand points


def transport_distance(first: Tensor, second: Tensor, *, cost: Cost = "euclidean") -> float:
    """Compute the exact optimal-transport distance ``min_π Σ π_ij c(x_i, y_j)`` between uniformly weighted points.

    Args:
        first: points, (N, C).
        second: points, (M, C).
        cost: ground cost. ``"euclidean"`` gives the 1-Wasserstein distance, in the unit of the points;
            ``"sqeuclidean"`` the squared 2-Wasserstein distance.

    Returns:
        The distance; NaN if a point is not finite.

    Example:
        >>> import torch
        >>> round(transport_distance(torch.tensor([[0.0], [1.0]]), torch.tensor([[4.0], [3.0]])), 6)
        3.0
    """
    check_choice("cost", cost, get_args(Cost))
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1] or not len(first) or not len(second):
        raise BatchError(
            f"Expected points of shapes (N, C) and (M, C), found {tuple(first.shape)} and {tuple(second.shape)}. "
            "Pass one row per point, with the same columns in both."
        )
    ot = import_optional("ot", "analysis", "The optimal-transport distance")
    x, y = to_numpy(first), to_numpy(second)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return float("nan")
    return float(
        ot.emd2(
            _uniform_weights(len(x)), _uniform_weights(len(y)), ot.dist(x, y, metric=cost), numItermax=_MAX_ITERATIONS
        )
    )


def _uniform_weights(count: int) -> np.ndarray:
    return np.full(count, 1 / count)


@dataclass(frozen=True, eq=False)
class Transport(AnalysisResult):
    """Optimal-transport distances to the source.

    Attributes:
        distances: distance by method; NaN if the features are not finite.
        floor: distance between two disjoint halves of the source points (at most ``max_points`` points each), a lower
            bound on the distances that alignment can reach. It is biased upwards if a half has fewer points than a
            target cloud.
        components: number of leading source directions in which the distances are computed.
        cost: ground cost of the transport.
    """

    distances: Mapping[str, float]
    floor: float
    components: int
    cost: str


@dataclass(frozen=True, eq=False)
class Clouds(AnalysisResult):
    """Source points and the target points after each method, in the same two coordinates.

    Attributes:
        axes: labels of the two coordinates.
        source: source points, (n, 2).
        targets: target points by method, each (m, 2).
        seed: seed of the subsampling.
        transport: optimal-transport distances; None if the coordinates have no meaningful metric.
    """

    axes: tuple[str, str]
    source: Array
    targets: Mapping[str, Array]
    seed: int
    transport: Transport | None = None


def principal_clouds(
    source: SourceStatistics,
    source_features: Tensor,
    targets: Mapping[str, Tensor],
    *,
    components: int = 2,
    cost: Cost = "euclidean",
    max_points: int = 1000,
    seed: int = 0,
) -> Clouds:
    """Project features onto the first two source directions and compute optimal-transport distances to the source.

    The directions are those of the source before adaptation, the same for every method. The paper specifies neither
    the number of components nor the cost of its distance; the defaults, two components and the Euclidean cost, are
    our interpretation.

    Args:
        source: source statistics that define the mean and the directions.
        source_features: features of the source model on source data, (N, D).
        targets: features of the adapted model on target data by method, each (M, D).
        components: number of leading directions in which the distance is computed, at least 2.
        cost: ground cost of the transport, ``"euclidean"`` or ``"sqeuclidean"``.
        max_points: maximum number of points per cloud; the exact distance takes cubic time in it.
        seed: seed of the subsampling.

    Example:
        >>> import regtta
        >>> rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(3, 1)), [rows])
        >>> clouds = principal_clouds(source, rows, {"same": rows, "moved": rows + 1})
        >>> clouds.transport.distances["moved"] > clouds.transport.distances["same"]
        True
    """
    if components < 2:
        raise OptionError(f"Expected components to be at least 2, since two are plotted, found {components!r}.")
    subspace = source.top(components, clip=False)
    whole = subspace.project(validate_features(source, source_features))
    points = subsample(whole, max_points, seed)
    projected = {
        name: subsample(subspace.project(validate_features(source, z)), max_points, seed) for name, z in targets.items()
    }
    transport = Transport(
        distances={name: transport_distance(points, cloud, cost=cost) for name, cloud in projected.items()},
        floor=_transport_floor(whole, max_points, seed, cost),
        components=components,
        cost=cost,
    )
    return Clouds(
        axes=("source direction 0 (feature units)", "source direction 1 (feature units)"),
        source=to_numpy(points[:, :2]),
        targets={name: to_numpy(cloud[:, :2]) for name, cloud in projected.items()},
        seed=seed,
        transport=transport,
    )


def _transport_floor(points: Tensor, max_points: int, seed: int, cost: Cost) -> float:
    """Return the distance between two disjoint random subsets of ``points``."""
    half = min(max_points, len(points) // 2)
    if half == 0:
        return float("nan")
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    return transport_distance(points[order[:half]], points[order[half : 2 * half]], cost=cost)


def umap_clouds(
    source: SourceStatistics,
    source_features: Tensor,
    targets: Mapping[str, Tensor],
    *,
    k: int = 100,
    neighbours: int = 15,
    max_points: int = 1000,
    seed: int = 0,
) -> Clouds:
    """Fit UMAP on source features projected onto the leading directions, then transform each method's target features.

    Distances in UMAP coordinates are not meaningful, so none are computed. The first call takes some seconds to
    compile UMAP.

    Args:
        source: source statistics that define the mean and the directions.
        source_features: features of the source model on source data, (N, D).
        targets: features of the adapted model on target data by method, each (M, D).
        k: number of leading directions to project onto, at most the rank.
        neighbours: number of neighbours in UMAP, less than the number of source points.
        max_points: maximum number of points per cloud.
        seed: seed of the subsampling and of UMAP.
    """
    check_positive_int("neighbours", neighbours)
    subspace = source.top(min(k, source.rank))
    # UMAP does not accept non-finite values.
    whole = {
        name: validate_finite_features(source, rows, f"the features of {name!r}") for name, rows in targets.items()
    }
    points = to_numpy(subspace.project(subsample(validate_finite_features(source, source_features), max_points, seed)))
    if len(points) <= neighbours:
        raise BatchError(
            f"Expected more source points than neighbours={neighbours}, found {len(points)}. Pass more features, or "
            "fewer neighbours."
        )
    projected = {name: to_numpy(subspace.project(subsample(rows, max_points, seed))) for name, rows in whole.items()}
    with _preserve_torch_threads():
        umap = import_optional("umap", "analysis", "UMAP")
        # With a seed, UMAP runs on one core anyway, and warns unless n_jobs=1.
        mapping = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit(points)
        mapped = {name: mapping.transform(cloud).astype(np.float64) for name, cloud in projected.items()}
    return Clouds(
        axes=("UMAP 1 (no unit)", "UMAP 2 (no unit)"),
        source=mapping.embedding_.astype(np.float64),
        targets=mapped,
        seed=seed,
    )


@contextmanager
def _preserve_torch_threads() -> Iterator[None]:
    """Restore torch's number of threads, which UMAP's compiler changes for all of OpenMP."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
