import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.shift_runs import PLAN, make_records
from regtta_bench.shifts import select_shifts
from regtta_bench.shifts.results import collect_scores
from regtta_bench.shifts.summary import bootstrap_shifts, summarise

NAMES = ["wine-white-to-red", "wine-white-drift", "wine-white-noise", "wine-red-to-white"]
SHIFTS = select_shifts(NAMES)
# R² by name of the shift, the same on all source models, offline; online is lower by 0.1 everywhere.
VALUES = {
    "source": (0.50, 0.10, 0.30, -5.0),
    "bn_adapt": (0.40, 0.60, 0.30, -0.5),
    "ssa, paper": (0.45, 0.55, 0.305, -0.2),
    "ssa": (0.47, 0.595, 0.29, -0.205),
    "oracle": (0.60, None, 0.40, 0.1),
}


@pytest.fixture(scope="module")
def by_row():
    table, records = make_records(
        SHIFTS, lambda shift, row, *_: VALUES[row][NAMES.index(shift.name)] if row in VALUES else ...
    )
    scores = collect_scores(SHIFTS, table, PLAN, records)
    return {half: {each.row: each for each in summarise(scores, half)} for half in ("development", "held-out")}


def test_the_mean_gain_by_hand(by_row):
    ssa = by_row["development"]["ssa"]
    assert (ssa.shifts, ssa.diverged) == (3, 0)
    assert ssa.gain.mean == pytest.approx((-0.03 + 0.495 - 0.01) / 3)
    assert ssa.online_gain.mean == pytest.approx(ssa.gain.mean)
    assert ssa.mean == ssa.raw_mean == pytest.approx((0.47 + 0.595 + 0.29) / 3)
    assert [each.mean for each in ssa.over_references] == pytest.approx([(0.02 + 0.045 - 0.015) / 3, 0.055 / 3])


def test_harm_parity_and_the_worst_shift_by_hand(by_row):
    ssa, bn_adapt, source = (by_row["development"][row] for row in ("ssa", "bn_adapt", "source"))
    assert (ssa.harmed, ssa.worst_shift, ssa.worst_gain) == (1, "wine-white-to-red", pytest.approx(-0.03))
    assert ssa.on_par == pytest.approx(2 / 3)  # 0.47 and 0.595 reach the better of both, 0.29 is 0.015 below 0.305
    assert (bn_adapt.harmed, bn_adapt.worst_gain) == (1, pytest.approx(-0.1))
    assert bn_adapt.on_par == pytest.approx(2 / 3)
    assert (source.harmed, source.gain.mean) == (0, 0)
    assert bn_adapt.over_references[1].pairs == 0  # itself


def test_scores_are_clipped_in_the_means_but_not_in_the_raw_mean(by_row):
    source, ssa = by_row["held-out"]["source"], by_row["held-out"]["ssa"]
    assert (source.raw_mean, source.mean) == (-5, -1)
    assert ssa.gain.mean == pytest.approx(0.795)
    assert math.isnan(ssa.gain.low)  # one shift has no interval
    assert ssa.on_par == 1


def test_a_diverged_run_counts_as_the_lowest_score(by_row):
    oracle = by_row["development"]["oracle"]
    assert oracle.diverged == 5
    assert math.isnan(oracle.raw_mean)
    assert oracle.mean == pytest.approx((0.6 - 1 + 0.4) / 3)


def test_the_interval_of_equal_gains_is_a_point():
    found = bootstrap_shifts([[0.3], [0.3, 0.3], [0.3, 0.3, 0.3]])
    assert (found.mean, found.low, found.high, found.pairs) == pytest.approx((0.3, 0.3, 0.3, 3))


def test_the_variance_of_the_bootstrap_is_that_of_nested_sampling():
    rng = np.random.default_rng(0)
    gains = [list(rng.normal(rng.normal(), 0.5, size=3)) for _ in range(40)]
    found = bootstrap_shifts(gains)
    means = np.array([np.mean(mine) for mine in gains])
    within = np.mean([np.var(mine) / len(mine) for mine in gains])
    sd = np.sqrt((means.var() + within) / len(gains))
    assert found.mean == pytest.approx(means.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * sd, rel=0.05)


def test_few_shifts_have_no_interval():
    assert bootstrap_shifts([]).pairs == 0
    assert math.isnan(bootstrap_shifts([]).mean)
    only = bootstrap_shifts([[0.1, 0.3]])
    assert (only.mean, only.pairs) == (pytest.approx(0.2), 1)
    assert math.isnan(only.low)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=4), min_size=2, max_size=6))
def test_the_interval_lies_within_the_range_of_the_gains(gains):
    found = bootstrap_shifts(gains)
    low, high = min(map(min, gains)), max(map(max, gains))
    assert low - 1e-9 <= found.low <= found.high <= high + 1e-9
