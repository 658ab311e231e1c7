"""Scaling of the time of a step with batch size, k, feature width and number of outputs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch

from benchmarks.speed.bench import Bench
from benchmarks.speed.cases.collecting import INFERENCE, collection, inference, whole_passes
from benchmarks.speed.cases.step import STRAIGHTFORWARD, regtta_step, straightforward_step
from benchmarks.speed.comparison import Maker, warm_up
from benchmarks.speed.findings import Curve, Findings, Point
from benchmarks.speed.subjects import Subject, Testbed, make_testbed
from benchmarks.speed.timing import Effort, TimedCall, Times, ratio, time_in_turns
from regtta.execution import PLAIN, Execution

Line = Callable[[Testbed], TimedCall]
Along = Callable[[Subject, tuple[int, ...], Bench], Curve]

ABOUT = """\
Growth is relative to the first size of the same line; all sizes and lines take turns in one run."""


def along_batches(subject: Subject, sizes: tuple[int, ...], bench: Bench) -> Curve:
    """Measure the step as a function of the batch size."""
    return _step_curve(
        subject, "batch size", sizes, lambda size: rebatch(make_testbed(subject, bench.device), size), bench
    )


def along_k(subject: Subject, sizes: tuple[int, ...], bench: Bench) -> Curve:
    """Measure the step as a function of the number of aligned directions."""
    testbed = make_testbed(subject, bench.device)
    return _step_curve(subject, "k", sizes, lambda k: replace(testbed, subject=replace(subject, k=k)), bench)


def along_width(subject: Subject, sizes: tuple[int, ...], bench: Bench) -> Curve:
    """Measure the step as a function of the feature width."""
    return _step_curve(
        subject, "features", sizes, lambda width: make_testbed(replace(subject, width=width), bench.device), bench
    )


def along_outputs(subject: Subject, sizes: tuple[int, ...], bench: Bench) -> Curve:
    """Measure the step as a function of the number of outputs."""
    return _step_curve(
        subject, "outputs", sizes, lambda count: make_testbed(replace(subject, outputs=count), bench.device), bench
    )


def along_samples(subject: Subject, sizes: tuple[int, ...], bench: Bench) -> Curve:
    """Measure the collection as a function of the number of samples."""
    testbed = make_testbed(subject, bench.device)
    lines: Mapping[str, Callable[[int], TimedCall]] = {
        INFERENCE: lambda samples: inference(testbed, samples, bench),
        "collect": lambda samples: collection(testbed, samples),
    }
    return _curve(
        f"collect, {subject.name}",
        "samples",
        sizes,
        lines,
        reference=INFERENCE,
        bench=bench,
        effort=whole_passes(bench),
    )


def measure_growth(along: Along, subject: Subject, sizes: tuple[int, ...], bench: Bench) -> Findings:
    """Measure one curve and return it as the findings of a case."""
    curve = along(subject, sizes, bench)
    return Findings(f"How cost grows with {curve.along}: {curve.title}", ABOUT, curves=(curve,))


def rebatch(testbed: Testbed, size: int) -> Testbed:
    """Return the same model with its stream in batches of ``size``."""
    rows = torch.cat(testbed.shifted)
    count = max(2, len(rows) // size)
    repeated = rows.repeat(-(-count * size // len(rows)), *(1 for _ in rows.shape[1:]))
    return replace(
        testbed, subject=replace(testbed.subject, batch=size), shifted=torch.split(repeated[: count * size], size)
    )


def _step_curve(
    subject: Subject, along: str, sizes: tuple[int, ...], at: Callable[[int], Testbed], bench: Bench
) -> Curve:
    steps: dict[str, Line] = {STRAIGHTFORWARD: straightforward_step, "regtta": partial(regtta_step, execution=PLAIN)}
    if bench.on_gpu:
        steps["regtta, captured"] = partial(regtta_step, execution=Execution(capture=True))
    lines = {name: _at(at, make) for name, make in steps.items()}
    return _curve(
        f"step, {subject.name}", along, sizes, lines, reference=STRAIGHTFORWARD, bench=bench, effort=bench.effort
    )


def _at(at: Callable[[int], Testbed], make: Line) -> Callable[[int], TimedCall]:
    return lambda size: make(at(size))


def _curve(
    title: str,
    along: str,
    sizes: tuple[int, ...],
    lines: Mapping[str, Callable[[int], TimedCall]],
    *,
    reference: str,
    bench: Bench,
    effort: Effort,
) -> Curve:
    makers: dict[str, Maker] = {
        _place(name, size): partial(make, size) for name, make in lines.items() for size in sizes
    }
    times = time_in_turns(warm_up(makers, bench, effort).calls_by_name, bench.device, effort)
    return Curve(title, along, "time", {name: _points(name, sizes, times, reference) for name in lines}, reference)


def _points(name: str, sizes: tuple[int, ...], times: Times, reference: str) -> tuple[Point, ...]:
    """Return the points of the sizes that could be run."""
    there = [size for size in sizes if _place(name, size) in times]
    return tuple(
        Point(
            size,
            ratio(times, _place(name, size), _place(name, there[0])),
            ratio(times, _place(name, size), _place(reference, size))
            if name != reference and _place(reference, size) in times
            else None,
        )
        for size in there
    )


def _place(name: str, size: int) -> str:
    return f"{name} at {size}"
