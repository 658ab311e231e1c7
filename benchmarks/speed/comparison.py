"""Comparison of several variants of one task: warm-up, alternating timing and the table of results."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from benchmarks.speed.bench import Bench
from benchmarks.speed.findings import Reading, Row, Table, spread
from benchmarks.speed.timing import Effort, TimedCall, Times, ratio, synchronize, time_in_turns

Maker = Callable[[], TimedCall]

MIB = 2**20
_EXPECTED = "regtta.statistics.source"  # warns that k is truncated, which is intended


@dataclass(frozen=True, eq=False)
class WarmedUp:
    """Warmed-up calls, with observations from their warm-up.

    Attributes:
        calls_by_name: calls that did not fail.
        peaks: peak of GPU memory of each in MiB; empty on a CPU.
        notes: messages that each logged, or the reason of its failure.
    """

    calls_by_name: dict[str, TimedCall] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def compare(
    title: str,
    makers: Mapping[str, Maker],
    references: Sequence[str],
    bench: Bench,
    *,
    samples: int,
    reading: Reading,
    effort: Effort | None = None,
) -> Table:
    """Time the calls of ``makers`` relative to the ``references`` among them.

    Args:
        title: title of the table.
        makers: makers of the calls by name, in the order of the table.
        references: names of the variants that all others are compared with.
        bench: configuration of the run.
        samples: number of samples that one call processes, for the throughput.
        reading: presentation of the ratios.
        effort: effort to use instead of the bench's.
    """
    effort = effort or bench.effort
    ready = warm_up(makers, bench, effort)
    times = time_in_turns(ready.calls_by_name, bench.device, effort)
    remarks = {name: timed.remark() for name, timed in ready.calls_by_name.items()}
    rows = tuple(
        _row(name, ready, times, remark=remarks.get(name, ""), references=references, bench=bench, samples=samples)
        for name in makers
    )
    return Table(title, reading, rows)


def warm_up(makers: Mapping[str, Maker], bench: Bench, effort: Effort) -> WarmedUp:
    """Make and warm up every call; a failing one is omitted, with a note."""
    found = WarmedUp()
    for name, make in makers.items():
        with _captured_logs() as lines, _peak(bench.device) as peak:
            try:
                timed = make()
                with timed.within():
                    for _ in range(effort.warm_calls):
                        timed.call()
                    synchronize(bench.device)
                found.calls_by_name[name] = timed
            except Exception as error:  # a variant that a machine cannot run must not affect the others
                lines.append(f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}")
        found.notes[name] = "; ".join(dict.fromkeys(lines))
        if peak and name in found.calls_by_name:
            found.peaks[name] = peak[0]
    return found


def _row(
    name: str, ready: WarmedUp, times: Times, *, remark: str, references: Sequence[str], bench: Bench, samples: int
) -> Row:
    note = "; ".join(filter(None, (ready.notes[name], remark)))
    if name not in times:
        return Row(name, note=note)
    seconds = spread(times[name])
    return Row(
        name,
        ratios={other: ratio(times, name, other) for other in references if other in times},
        milliseconds=spread([1000 * value for value in times[name]]) if bench.on_gpu else None,
        per_second=samples / seconds.median if bench.on_gpu else None,
        peak_mib=ready.peaks.get(name),
        note=note,
    )


@contextmanager
def _captured_logs() -> Iterator[list[str]]:
    """Yield the list of messages that regtta logs within the block."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name != _EXPECTED:
                lines.append(record.getMessage())

    logger, listener = logging.getLogger("regtta"), Listener(logging.INFO)
    before = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before)


@contextmanager
def _peak(device: torch.device) -> Iterator[list[float]]:
    """Yield a list that holds, after the block, its peak of GPU memory in MiB beyond the memory in use before."""
    found: list[float] = []
    if device.type != "cuda":
        yield found
        return
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        yield found
    finally:
        found.append((torch.cuda.max_memory_allocated(device) - before) / MIB)
