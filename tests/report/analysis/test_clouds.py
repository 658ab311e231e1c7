import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from helpers import small_models
from regtta.errors import OptionError
from regtta.report.analysis import principal_clouds


def coordinates(case, features, components):
    return (small_models.numpy64(features) - small_models.numpy64(case.source.mean)) @ small_models.numpy64(
        case.source.basis[:, :components]
    )


def test_points_and_distances_agree_with_numpy_and_the_best_assignment(case):
    source_rows = case.source_features[:200]
    clouds = principal_clouds(case.source, source_rows, {"Source": case.before, "SSA": case.after}, components=4)
    points = coordinates(case, source_rows, 4)
    assert clouds.source == pytest.approx(points[:, :2], abs=1e-9)
    for name, features in (("Source", case.before), ("SSA", case.after)):
        moved = coordinates(case, features, 4)
        assert clouds.targets[name] == pytest.approx(moved[:, :2], abs=1e-9)
        costs = cdist(points, moved)
        expected = costs[linear_sum_assignment(costs)].mean()
        assert clouds.transport.distances[name] == pytest.approx(expected, rel=1e-8)
    assert (clouds.transport.components, clouds.transport.cost, clouds.seed) == (4, "euclidean", 0)
    json.dumps(clouds.to_dict(), allow_nan=False)


def test_adaptation_reduces_the_distance(case):
    clouds = principal_clouds(case.source, case.source_features, {"Source": case.before, "SSA": case.after})
    distances = clouds.transport.distances
    assert clouds.transport.floor < distances["SSA"] < distances["Source"]


def test_subsampling_keeps_methods_paired(case):
    clouds = principal_clouds(
        case.source, case.source_features, {"a": case.before, "b": case.before + 1}, max_points=30, seed=3
    )
    assert clouds.source.shape == clouds.targets["a"].shape == (30, 2)
    step = clouds.targets["b"] - clouds.targets["a"]
    assert step == pytest.approx(np.tile(case.source.basis[:, :2].sum(0).numpy(), (30, 1)), abs=1e-5)
    other = principal_clouds(case.source, case.source_features, {"a": case.before}, max_points=30, seed=4)
    assert not np.array_equal(other.source, clouds.source)


def test_the_floor_is_the_distance_of_two_halves(case):
    clouds = principal_clouds(case.source, case.source_features, {}, cost="sqeuclidean")
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    points = coordinates(case, case.source_features, 2)
    costs = cdist(points[order[:150]], points[order[150:]], metric="sqeuclidean")
    assert clouds.transport.floor == pytest.approx(costs[linear_sum_assignment(costs)].mean(), rel=1e-8)
    alone = principal_clouds(case.source, case.source_features[:1], {})
    assert math.isnan(alone.transport.floor)


def test_a_diverged_method_has_no_distance(case):
    broken = torch.full_like(case.before, torch.nan)
    distances = principal_clouds(case.source, case.source_features, {"broken": broken, "fine": case.before}).to_dict()[
        "transport"
    ]["distances"]
    assert distances["broken"] is None
    assert distances["fine"] > 0


@pytest.mark.parametrize("components", [1, 13])
def test_invalid_components_are_rejected(case, components):
    with pytest.raises(OptionError):
        principal_clouds(case.source, case.source_features, {}, components=components)
