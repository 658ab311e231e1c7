"""Times of calls that take turns, so that whatever else the machine does meets all of them alike."""

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from benchmarks.speed.findings import Spread, spread

LEAST_ROUNDS = 3

Call = Callable[[], object]
Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Effort:
    """How much time a comparison may take.

    Attributes:
        rounds: samples of each call.
        seconds: after which no round begins, once there are a few.
        sample_seconds: that a sample takes at the least, by making the call as often as that needs.
        most_calls: of a sample.
        warm_calls: made before anything is measured.
    """

    rounds: int = 21
    seconds: float = 20.0
    sample_seconds: float = 0.1
    most_calls: int = 200
    warm_calls: int = 12


@dataclass(frozen=True)
class Contestant:
    """A call to be timed.

    Attributes:
        call: does it once; synchronises nothing.
        within: gives the settings that it runs under.
        remark: what there is to say once it has been timed.
    """

    call: Call
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    remark: Callable[[], str] = str


def race(contestants: Mapping[str, Contestant], device: torch.device, effort: Effort) -> Times:
    """Seconds a call of each, sample by sample: all are sampled once a round, in another order each round.

    Every contestant must have been warmed up.
    """
    turns = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with _no_collector():
        calls = {name: _calls_a_sample(one, device, effort) for name, one in contestants.items()}
        end = time.perf_counter() + effort.seconds
        for number in range(effort.rounds):
            if number >= LEAST_ROUNDS and time.perf_counter() > end:
                break
            for name in turns.sample(sorted(contestants), len(contestants)):
                times[name].append(seconds_of(contestants[name], device, calls[name]))
    return times


def seconds_of(contestant: Contestant, device: torch.device, calls: int) -> float:
    """The mean time of so many calls in a row, once the device has nothing else to do."""
    with contestant.within():
        synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            contestant.call()
        synchronize(device)
        return (time.perf_counter() - start) / calls


def ratio(times: Times, name: str, reference: str) -> Spread:
    """The time of one over that of another, pair by pair of the same round.

    Example:
        >>> ratio({"a": [2.0, 3.0, 8.0], "b": [1.0, 1.0, 2.0]}, "a", "b").median
        3.0
    """
    return spread([one / other for one, other in zip(times[name], times[reference], strict=True)])


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _calls_a_sample(contestant: Contestant, device: torch.device, effort: Effort) -> int:
    if effort.most_calls == 1:
        return 1
    seconds = max(1e-9, seconds_of(contestant, device, 1))
    return max(1, min(effort.most_calls, round(effort.sample_seconds / seconds)))


@contextmanager
def _no_collector() -> Iterator[None]:
    """No garbage collection within, which would fall on whoever happens to be at it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
