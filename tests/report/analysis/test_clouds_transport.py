import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from helpers import small_models
from regtta.errors import BatchError, MissingExtraError, OptionError
from regtta.report.analysis import transport_distance


@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean"])
def test_agrees_with_the_optimal_assignment(cost):
    a, b = small_models.table(40, inputs=3), small_models.table(40, inputs=3, shift=1.0, seed=4)
    costs = cdist(small_models.numpy64(a), small_models.numpy64(b), metric=cost)
    best = costs[linear_sum_assignment(costs)].mean()
    assert transport_distance(a, b, cost=cost) == pytest.approx(best, rel=1e-9)


def test_agrees_with_scipy_on_a_line_for_clouds_of_different_sizes():
    a, b = small_models.table(30, inputs=1), small_models.table(50, inputs=1, shift=0.5, seed=4)
    expected = wasserstein_distance(small_models.numpy64(a)[:, 0], small_models.numpy64(b)[:, 0])
    assert transport_distance(a, b) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=25)
@given(move=st.lists(st.floats(-10, 10), min_size=2, max_size=2), seed=st.integers(0, 50))
def test_distance_of_a_translated_cloud_is_its_translation(move, seed):
    cloud = small_models.table(15, inputs=2, seed=seed).double()
    moved = cloud + torch.tensor(move, dtype=torch.float64)
    assert transport_distance(cloud, moved) == pytest.approx(np.hypot(*move), abs=1e-6)
    assert transport_distance(cloud, moved) == pytest.approx(transport_distance(moved, cloud), abs=1e-9)


def test_non_finite_points_have_no_distance():
    broken = torch.tensor([[0.0, torch.nan]])
    assert math.isnan(transport_distance(broken, torch.zeros(1, 2)))


@pytest.mark.parametrize(("a", "b"), [((3, 2), (3, 3)), ((3,), (3, 1)), ((0, 2), (3, 2)), ((3, 2), (0, 2))])
def test_mismatched_shapes_are_rejected(a, b):
    with pytest.raises(BatchError, match=r"\(N, C\) and \(M, C\)"):
        transport_distance(torch.zeros(a), torch.zeros(b))


def test_an_unknown_cost_is_rejected():
    with pytest.raises(OptionError, match="cost"):
        transport_distance(torch.zeros(1, 1), torch.zeros(1, 1), cost="cosine")


def test_without_pot_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MissingExtraError, match=r'POT.*pip install "regtta\[analysis\]"'):
        transport_distance(torch.zeros(1, 1), torch.zeros(1, 1))
