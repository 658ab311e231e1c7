import math

import numpy as np
import pytest

from helpers.shift_runs import PLAN, make_records
from regtta_bench.paper import NO_STEP_TAKEN
from regtta_bench.shifts import select_shifts
from regtta_bench.shifts.results import collect_scores
from regtta_bench.sweep.run_specs import SweepPlan

SHIFTS = select_shifts(["wine-white-to-red", "wine-white-drift"])
FIRST, SECOND = (shift.name for shift in SHIFTS)
VALUES = {"source": [0.1, 0.2, 0.3, 0.4, 0.5], "ssa": [0.5, -3.0, 0.4, None, 0.6], "bn_adapt": [-2.0, -3, -4, -5, -6]}


def score(shift, row, source_seed, seed):
    return VALUES[row][source_seed] if row in VALUES and shift.name == FIRST else ...


def collect(value=score, shifts=SHIFTS, plan=PLAN):
    table, records = make_records(shifts, value, plan=plan)
    return collect_scores(shifts, table, plan, records)


def test_scores_are_clipped_and_divergence_counts_as_the_lowest_score():
    found = collect().score(FIRST, "ssa")
    assert dict(found.clipped) == pytest.approx({0: 0.5, 1: -1.0, 2: 0.4, 3: -1.0, 4: 0.6})
    assert found.clipped_mean == pytest.approx(np.mean([0.5, -1, 0.4, -1, 0.6]))
    assert math.isnan(found.mean)
    assert (found.runs, found.diverged, found.missing) == (5, 1, 0)
    below = collect().score(FIRST, "bn_adapt")
    assert (below.mean, below.clipped_mean) == (-4, -1)


def test_gains_are_paired_by_source_model():
    gains = collect().gains(FIRST, "ssa")
    assert gains == pytest.approx({0: 0.4, 1: -1.2, 2: 0.1, 3: -1.4, 4: 0.1})
    difference = collect().difference(FIRST, "ssa")
    assert (difference.mean, difference.pairs) == (pytest.approx(-0.4), 5)
    assert difference.low < -0.4 < difference.high
    assert collect().gains(FIRST, "ssa", over="bn_adapt")[1] == 0


def test_online_scores_are_apart():
    assert collect().score(FIRST, "source", "online").mean == pytest.approx(0.2)


def test_shifts_and_rows_without_runs_are_left_out():
    found = collect()
    assert [shift.name for shift in found.shifts] == [FIRST]
    assert found.rows == ("source", "bn_adapt", "ssa")
    assert found.score(SECOND, "source") is None
    assert found.gains(SECOND, "ssa") == {}


def test_a_source_model_without_all_its_runs_is_left_out_and_counted():
    plan = SweepPlan(seeds=2)

    def partial(shift, row, source_seed, seed):
        return ... if (row, source_seed, seed) == ("bn_adapt", 3, 1) else 0.1 * source_seed + seed

    found = collect(partial, plan=plan).score(FIRST, "bn_adapt")
    assert dict(found.raw) == pytest.approx({0: 0.5, 1: 0.6, 2: 0.7, 4: 0.9})
    assert (found.runs, found.missing) == (9, 1)


def test_a_method_that_took_no_step_did_not_diverge():
    table, records = make_records(SHIFTS, score)
    for record in records:
        record["result"]["diverged"] = record["result"]["diverged"] or NO_STEP_TAKEN
    assert collect_scores(SHIFTS, table, PLAN, records).score(FIRST, "ssa").diverged == 1
