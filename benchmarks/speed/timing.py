"""Alternating timing of calls, so that other load of the machine affects all of them alike."""

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from benchmarks.speed.findings import Spread, spread

MIN_ROUNDS = 3

Call = Callable[[], object]
Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Effort:
    """Number and length of the samples of a comparison.

    Attributes:
        rounds: samples of each call.
        seconds: time after which no further round begins, once there are ``MIN_ROUNDS``.
        sample_seconds: minimum duration of a sample, which repeats the call accordingly.
        max_calls: maximum number of calls in a sample.
        warm_calls: calls before the measurement.
    """

    rounds: int = 21
    seconds: float = 20.0
    sample_seconds: float = 0.1
    max_calls: int = 200
    warm_calls: int = 12


@dataclass(frozen=True)
class TimedCall:
    """Call to be timed.

    Attributes:
        call: the call, without synchronisation.
        within: makes the context that it runs in.
        remark: returns a note for the table, after the timing.
    """

    call: Call
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    remark: Callable[[], str] = str


def time_in_turns(calls_by_name: Mapping[str, TimedCall], device: torch.device, effort: Effort) -> Times:
    """Return the seconds per call of each sample: all are sampled once a round, in a new order each round.

    Every call must have been warmed up.
    """
    turns = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls_by_name}
    with _no_collector():
        calls = {name: _calls_a_sample(one, device, effort) for name, one in calls_by_name.items()}
        end = time.perf_counter() + effort.seconds
        for number in range(effort.rounds):
            if number >= MIN_ROUNDS and time.perf_counter() > end:
                break
            for name in turns.sample(sorted(calls_by_name), len(calls_by_name)):
                times[name].append(seconds_of(calls_by_name[name], device, calls[name]))
    return times


def seconds_of(timed: TimedCall, device: torch.device, calls: int) -> float:
    """Return the mean time of consecutive calls, with the device idle before and after."""
    with timed.within():
        synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            timed.call()
        synchronize(device)
        return (time.perf_counter() - start) / calls


def ratio(times: Times, name: str, reference: str) -> Spread:
    """Compute the ratio of two calls' times, paired by round.

    Example:
        >>> ratio({"a": [2.0, 3.0, 8.0], "b": [1.0, 1.0, 2.0]}, "a", "b").median
        3.0
    """
    return spread([one / other for one, other in zip(times[name], times[reference], strict=True)])


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _calls_a_sample(timed: TimedCall, device: torch.device, effort: Effort) -> int:
    if effort.max_calls == 1:
        return 1
    seconds = max(1e-9, seconds_of(timed, device, 1))
    return max(1, min(effort.max_calls, round(effort.sample_seconds / seconds)))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Disable garbage collection within the block, which would distort the time of a random call."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
