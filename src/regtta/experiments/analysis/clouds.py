"""Where source and target features lie in two dimensions, before and after adapting."""

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
        distances: by method; NaN where its features are not finite.
        floor: between two halves of the source's own points (at most ``most`` each). No alignment can be expected
            below it; with fewer points in a half than in a target's cloud it is somewhat too high.
        components: leading source directions that the distances are over.
        cost: of one move.
    """

    distances: Mapping[str, float]
    floor: float
    components: int
    cost: str


@dataclass(frozen=True, eq=False)
class Clouds(Report):
    """Points of the source and of the target as each method leaves it, in the same two coordinates.

    Attributes:
        axes: what the coordinates are.
        source: (n, 2).
        targets: (m, 2) by method.
        seed: of the draw of points.
        transport: distances, where the coordinates carry any.
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
    """Features along the first two source directions, with the optimal-transport distance to the source's.

    The directions are the source's before adapting, the same for every method. The paper names neither the number of
    components nor the cost of its distance: the two of its picture and the Euclidean one are our reading.

    Args:
        source: whose mean and directions.
        source_features: (N, D) of the source model on source data.
        targets: (M, D) by method, of the adapted model on target data.
        components: leading directions that the distance is over, two or more.
        cost: of one move, ``"euclidean"`` or ``"sqeuclidean"``.
        most: points drawn of each cloud: the distance takes the cube of their number.
        seed: of the draws.

    Example:
        >>> import regtta
        >>> rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(3, 1)), [rows])
        >>> clouds = principal_clouds(source, rows, {"same": rows, "moved": rows + 1})
        >>> clouds.transport.distances["moved"] > clouds.transport.distances["same"]
        True
    """
    if components < 2:
        raise OptionError(f"Expected two components or more, since two are drawn, found {components!r}.")
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
    """The distance between two disjoint draws of the same points."""
    half = min(most, len(points) // 2)
    if half == 0:
        return float("nan")
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    return transport_distance(points[order[:half]], points[order[half : 2 * half]], cost=cost)
