"""Peak memory of ``regtta.collect`` as a function of the number of samples; it must stay constant."""

import json

from benchmarks.speed.bench import Bench
from benchmarks.speed.findings import Curve, Fact, Findings, Point, spread
from benchmarks.speed.subprocesses import ROOT, run_python

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 2_000)
PROGRAM = ROOT / "benchmarks" / "collect_memory.py"
ABOUT = "Rows made on the fly, in a process of its own for each size: `benchmarks/collect_memory.py`."


def memory(bench: Bench) -> Findings:
    """Measure the peaks relative to the smallest size, and the first peak in MiB."""
    sizes = QUICK_SIZES if bench.quick else SIZES
    found = {size: _peaks(size, bench) for size in sizes}
    first = found[sizes[0]]
    lines = {name: tuple(Point(size, spread([found[size][name] / first[name]])) for size in sizes) for name in first}
    curve = Curve("Peak memory of collect", "samples", "peak memory", lines)
    facts = tuple(Fact(f"{name}, {sizes[0]:,} samples", peak, "MiB") for name, peak in first.items())
    return Findings("Memory of collecting", ABOUT, curves=(curve,), facts=facts)


def _peaks(samples: int, bench: Bench) -> dict[str, float]:
    """Return the peaks in MiB, by kind of memory, of a process that collects over ``samples`` rows."""
    printed = run_python([str(PROGRAM), "--samples", str(samples), "--device", str(bench.device)])
    found: dict[str, float] = json.loads(printed)
    return found
