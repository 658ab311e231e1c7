"""Ways of doing one thing, made ready, timed in turns, and laid out as a table."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from benchmarks.speed.bench import Bench
from benchmarks.speed.findings import Reading, Row, Table, spread
from benchmarks.speed.timing import Contestant, Effort, Times, race, ratio, synchronize

Maker = Callable[[], Contestant]

MIB = 2**20
_EXPECTED = "regtta.statistics.source"  # says that k is cut, which is meant


@dataclass(frozen=True, eq=False)
class Field:
    """Contestants that are warm, and what was seen as they became so.

    Attributes:
        contestants: by name.
        peaks: GPU memory that each took at the most, in MiB; empty on a CPU.
        notes: by name, what they logged, or why they failed.
    """

    contestants: dict[str, Contestant] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def compared(
    title: str,
    makers: Mapping[str, Maker],
    references: Sequence[str],
    bench: Bench,
    *,
    samples: int,
    reading: Reading,
    effort: Effort | None = None,
) -> Table:
    """Time what ``makers`` make against the ``references`` among them.

    Args:
        title: of the table.
        makers: by name, in the order of the table.
        references: names of those that all are compared with.
        bench: how to measure.
        samples: that one call handles, for samples a second.
        reading: how to show the ratios.
        effort: other than the bench's.
    """
    effort = effort or bench.effort
    ready = made_ready(makers, bench, effort)
    times = race(ready.contestants, bench.device, effort)
    remarks = {name: contestant.remark() for name, contestant in ready.contestants.items()}
    rows = tuple(
        _row(name, ready, times, remark=remarks.get(name, ""), references=references, bench=bench, samples=samples)
        for name in makers
    )
    return Table(title, reading, rows)


def made_ready(makers: Mapping[str, Maker], bench: Bench, effort: Effort) -> Field:
    """Make and warm up every contestant; one that fails is out of the race, with a note."""
    found = Field()
    for name, make in makers.items():
        with _heard() as lines, _peak(bench.device) as peak:
            try:
                contestant = make()
                with contestant.within():
                    for _ in range(effort.warm_calls):
                        contestant.call()
                    synchronize(bench.device)
                found.contestants[name] = contestant
            except Exception as error:  # a variant that a machine cannot run must not cost the others their numbers
                lines.append(f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}")
        found.notes[name] = "; ".join(dict.fromkeys(lines))
        if peak and name in found.contestants:
            found.peaks[name] = peak[0]
    return found


def _row(
    name: str, ready: Field, times: Times, *, remark: str, references: Sequence[str], bench: Bench, samples: int
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
def _heard() -> Iterator[list[str]]:
    """What regtta logs within."""
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
    """Holds, once the block is done, the GPU memory in MiB that it took beyond what was taken before."""
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
