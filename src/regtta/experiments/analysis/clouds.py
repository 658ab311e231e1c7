"""Two-dimensional projections of source and target features, before and after adaptation."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.experiments.analysis.features import checked_features, drawn
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.experiments.analysis.transport import Cost, transport_distance
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class Transport(Report):
    """Optimal-transport distances to the source.

    Attributes:
        distances: distance by method; NaN if the features are not finite.
        floor: distance between two disjoint halves of the source points (at most ``most`` points each), a lower bound
            on what alignment can reach. It is biased upwards if a half has fewer points than a target cloud.
        components: number of leading source directions in which the distances are computed.
        cost: ground cost of the transport.
    """

    distances: Mapping[str, float]
    floor: float
    components: int
    cost: str


@dataclass(frozen=True, eq=False)
class Clouds(Report):
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
    most: int = 1000,
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
        most: maximum number of points per cloud; the exact distance takes cubic time in it.
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
    whole = subspace.project(checked_features(source, source_features))
    points = drawn(whole, most, seed)
    moved = {name: drawn(subspace.project(checked_features(source, z)), most, seed) for name, z in targets.items()}
    transport = Transport(
        distances={name: transport_distance(points, cloud, cost=cost) for name, cloud in moved.items()},
        floor=_floor(whole, most, seed, cost),
        components=components,
        cost=cost,
    )
    return Clouds(
        axes=("source direction 0 (feature units)", "source direction 1 (feature units)"),
        source=array(points[:, :2]),
        targets={name: array(cloud[:, :2]) for name, cloud in moved.items()},
        seed=seed,
        transport=transport,
    )


def _floor(points: Tensor, most: int, seed: int, cost: Cost) -> float:
    """Return the distance between two disjoint random subsets of ``points``."""
    half = min(most, len(points) // 2)
    if half == 0:
        return float("nan")
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    return transport_distance(points[order[:half]], points[order[half : 2 * half]], cost=cost)
