"""Breakdown of the time of a step by kind of work, from torch's profiler."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.speed.bench import Bench
from benchmarks.speed.cases.step import regtta_row, regtta_step, straightforward_step
from benchmarks.speed.findings import Findings, Shares
from benchmarks.speed.kernel_kinds import kind_of
from benchmarks.speed.subjects import Subject, make_testbed
from benchmarks.speed.timing import TimedCall, synchronize
from benchmarks.speed.variants import CAPTURED
from regtta.execution import FAST, PLAIN

MAX_KERNELS = 12
ABOUT = """\
Shares of the time that kernels (on a CPU: operators) took. A kernel is counted as one kind by its name, and one
that does more than one thing as what it is named for first: a compiled kernel of BatchNorm also does the ReLU and
the addition after it."""


def profiling(subject: Subject, bench: Bench) -> Findings:
    """Profile the straightforward step, and regtta's in the most important executions."""
    steps = 2 if bench.quick else 10 if bench.on_gpu else 3
    testbed = make_testbed(subject, bench.device)
    makers: dict[str, Callable[[], TimedCall]] = {"straightforward": partial(straightforward_step, testbed)}
    for execution in (PLAIN, CAPTURED, FAST) if bench.on_gpu else (PLAIN,):
        makers[regtta_row(execution)] = partial(regtta_step, testbed, execution)
    shares = tuple(shares_of(f"{subject.title}: {name}", make(), steps, bench) for name, make in makers.items())
    return Findings(f"Where the time goes: {subject.title}", ABOUT, shares=shares)


def shares_of(title: str, timed: TimedCall, steps: int, bench: Bench) -> Shares:
    """Profile the steps of a call after its warm-up."""
    for _ in range(bench.effort.warm_calls):
        timed.call()
    synchronize(bench.device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if bench.on_gpu else [])]
    with profile(activities=activities) as found:
        start = time.perf_counter()
        for _ in range(steps):
            timed.call()
        synchronize(bench.device)
        wall = time.perf_counter() - start
    spent = _on_gpu(found) if bench.on_gpu else _on_cpu(found)
    total = sum(spent.values())
    parts: dict[str, float] = {}
    for name, microseconds in spent.items():
        parts[kind_of(name)] = parts.get(kind_of(name), 0.0) + microseconds / total
    largest = tuple((name[:120], kind_of(name), value / total) for name, value in spent.most_common(MAX_KERNELS))
    busy = min(1.0, total / (wall * 1e6)) if bench.on_gpu else None
    return Shares(title, dict(sorted(parts.items(), key=lambda part: -part[1])), largest, busy)


def _on_gpu(found: profile) -> Counter[str]:
    """Return the microseconds of each kernel, including copies and memsets."""
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation:  # an annotation spans other kernels
            spent[event.key] += event.self_device_time_total
    return spent


def _on_cpu(found: profile) -> Counter[str]:
    """Return the microseconds of each operator, excluding the operators it calls."""
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        spent[event.key] += event.self_cpu_time_total
    return spent
