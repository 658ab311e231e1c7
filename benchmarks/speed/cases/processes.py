"""Speed-up of collecting with several processes on one machine."""

import json
import tempfile
from pathlib import Path

from benchmarks.speed.bench import Bench
from benchmarks.speed.findings import Findings, Row, Table
from benchmarks.speed.subprocesses import ROOT, run_python_processes
from benchmarks.speed.timing import Times, ratio

PROGRAM = ROOT / "benchmarks" / "collect_in_processes.py"
SIZES = (1, 2)
ABOUT = """\
The same rows, shared among processes of one thread each that find each other through gloo; every pass counts from
the start of the first to the end of the last. On a machine with other work to do, two are less than twice as fast."""


def processes(bench: Bench) -> Findings:
    """Time passes of one process and of two, alternately."""
    samples, repeats, rounds = (2_000, 1, 1) if bench.quick else (200_000, 3, 3)
    times: dict[str, list[float]] = {_name(size): [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            times[_name(size)] += _passes(size, samples, repeats)
    rows = tuple(_row(name, times) for name in times)
    table = Table(f"Collecting {samples:,} rows", "times as fast", rows)
    return Findings("Several processes", ABOUT, tables=(table,))


def _passes(size: int, samples: int, repeats: int) -> list[float]:
    """Return the duration in seconds of each pass of ``size`` processes."""
    with tempfile.TemporaryDirectory() as folder:
        common = ["--size", str(size), "--store", str(Path(folder) / "store")]
        common += ["--samples", str(samples), "--repeats", str(repeats)]
        printed = run_python_processes([[str(PROGRAM), "--rank", str(rank), *common] for rank in range(size)])
    found: list[float] = json.loads(printed[0])
    return found


def _row(name: str, times: Times) -> Row:
    return Row(name, {_name(SIZES[0]): ratio(times, name, _name(SIZES[0]))})


def _name(size: int) -> str:
    return "1 process" if size == 1 else f"{size} processes"
