"""Tests of timing and ratios with a simulated clock, independent of the speed of the machine."""

from contextlib import contextmanager

import pytest
import torch

from benchmarks.speed import timing
from benchmarks.speed.timing import Effort, TimedCall, ratio, time_in_turns

CPU = torch.device("cpu")


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        self.calls = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def takes(self, name, seconds, **more):
        def call():
            self.calls.append(name)
            self.now += seconds

        return TimedCall(call, **more)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_times_are_per_call_and_ratios_are_paired(clock):
    calls_by_name = {"slow": clock.takes("slow", 0.04), "quick": clock.takes("quick", 0.01)}
    times = time_in_turns(calls_by_name, CPU, Effort(rounds=5, seconds=100, sample_seconds=0.1))
    assert times["slow"] == pytest.approx([0.04] * 5)
    found = ratio(times, "slow", "quick")
    assert (found.median, found.low, found.high, found.count) == pytest.approx((4, 4, 4, 5))


def test_drift_of_the_machine_cancels_in_paired_ratios(clock):
    def drifting(share):
        def call():
            clock.now += share * (1 + clock.now)

        return TimedCall(call)

    times = time_in_turns({"a": drifting(0.002), "b": drifting(0.001)}, CPU, Effort(rounds=9, seconds=100, max_calls=1))
    assert times["a"][-1] > times["a"][0] * 1.01
    found = ratio(times, "a", "b")
    assert found.median == pytest.approx(2, rel=0.01)
    assert found.high - found.low < 0.02


def test_every_call_is_timed_once_per_round_in_varying_order(clock):
    calls_by_name = {name: clock.takes(name, 1.0) for name in "abc"}
    time_in_turns(calls_by_name, CPU, Effort(rounds=8, seconds=1000, max_calls=1))
    rounds = ["".join(clock.calls[start : start + 3]) for start in range(0, 24, 3)]
    assert [sorted(turns) for turns in rounds] == [["a", "b", "c"]] * 8
    assert len(set(rounds)) > 2


def test_short_calls_are_repeated_and_long_calls_are_made_once(clock):
    time_in_turns(
        {"short": clock.takes("short", 0.01), "long": clock.takes("long", 5.0)},
        CPU,
        Effort(rounds=1, seconds=100, sample_seconds=0.1),
    )
    assert clock.calls.count("short") == 1 + 10  # one call to estimate the duration
    assert clock.calls.count("long") == 1 + 1


def test_no_round_starts_after_the_time_limit_beyond_the_minimum(clock):
    times = time_in_turns({"a": clock.takes("a", 10.0)}, CPU, Effort(rounds=50, seconds=15, max_calls=1))
    assert len(times["a"]) == timing.MIN_ROUNDS
    times = time_in_turns({"a": clock.takes("a", 1.0)}, CPU, Effort(rounds=50, seconds=15, max_calls=1))
    assert len(times["a"]) == 16


def test_calls_run_inside_their_context_manager(clock):
    inside = []

    @contextmanager
    def setting():
        inside.append(True)
        yield
        inside.append(False)

    seen = []
    timed = TimedCall(lambda: seen.append(inside[-1]), within=setting)
    time_in_turns({"a": timed}, CPU, Effort(rounds=2, seconds=1, max_calls=1))
    assert seen == [True, True]
    assert inside[-1] is False


def test_garbage_collection_is_disabled_only_while_timing(clock):
    import gc

    seen = []
    time_in_turns({"a": TimedCall(lambda: seen.append(gc.isenabled()))}, CPU, Effort(rounds=1, max_calls=1))
    assert seen == [False]
    assert gc.isenabled()
