"""Start-up time: import of regtta relative to import of torch."""

from dataclasses import replace
from functools import partial

import torch

from benchmarks.speed.bench import Bench
from benchmarks.speed.comparison import Maker, compare
from benchmarks.speed.findings import Findings
from benchmarks.speed.subprocesses import run_python
from benchmarks.speed.timing import TimedCall

PYTHON, TORCH = "python alone", "import torch"
PROGRAMS = {
    PYTHON: "pass",
    TORCH: "import torch",
    "import regtta": "import regtta",
    "import regtta, every public name used": "import regtta; [getattr(regtta, name) for name in regtta.__all__]",
}
ABOUT = "Whole processes, from their start to their end. regtta's names are imported when they are first used."


def startup(bench: Bench) -> Findings:
    """Time processes that only import a package."""
    makers: dict[str, Maker] = {name: _maker(program) for name, program in PROGRAMS.items()}
    effort = replace(bench.effort, rounds=1 if bench.quick else 7, max_calls=1, warm_calls=0 if bench.quick else 1)
    here = replace(bench, device=torch.device("cpu"))  # absolute times of a CPU are not reported
    table = compare("Importing", makers, (TORCH, PYTHON), here, samples=1, reading="times the time", effort=effort)
    return Findings("Start-up", ABOUT, tables=(table,))


def _maker(program: str) -> Maker:
    return lambda: TimedCall(partial(run_python, ["-c", program]))
