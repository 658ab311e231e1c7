"""Table of all cases by name, in order of importance, so that a time limit omits the least important ones."""

from collections.abc import Callable
from functools import partial

from benchmarks.speed.bench import Bench
from benchmarks.speed.cases import growth
from benchmarks.speed.cases.collecting import collecting
from benchmarks.speed.cases.floor import floor
from benchmarks.speed.cases.memory import memory
from benchmarks.speed.cases.precision import precision
from benchmarks.speed.cases.processes import processes
from benchmarks.speed.cases.profiling import profiling
from benchmarks.speed.cases.serving import serving
from benchmarks.speed.cases.startup import startup
from benchmarks.speed.cases.step import step
from benchmarks.speed.findings import Findings
from benchmarks.speed.subjects import (
    COLUMNS,
    DIGITS,
    LARGE_MLP,
    MLP,
    RESNET26,
    RESNET50,
    TINY_IMAGES,
    TINY_MLP,
    Subject,
)
from benchmarks.speed.trials import DEMO, REAL

Case = Callable[[], Findings]

ROWS = Subject("tabular MLP", "mlp", 1_000, (COLUMNS,), source_batches=4)
WIDE = Subject("MLP of 2,048 features", "wide", 256, (COLUMNS,), width=2_048)
NARROW = Subject("MLP", "wide", 64, (COLUMNS,), source_batches=64, width=256)
TINY_WIDE = Subject("MLP", "wide", 16, (COLUMNS,), width=32)


def cases_for(bench: Bench) -> dict[str, Case]:
    """Return every case that ``bench`` can run."""
    found = _quick(bench) if bench.quick else _full(bench)
    settings = REAL if bench.data is not None else (DEMO,)
    if bench.data is None:  # the speed to show next to the scores
        found["step/digits"] = partial(step, DIGITS if not bench.quick else TINY_IMAGES, bench)
    return found | {f"precision/{name}": partial(precision, name, bench) for name in settings}


def _full(bench: Bench) -> dict[str, Case]:
    images = {"resnet50": RESNET50, "resnet26": RESNET26} if bench.on_gpu else {"resnet26": RESNET26}
    rows = {"mlp": MLP}
    found: dict[str, Case] = {}
    found |= {f"step/{name}": partial(step, subject, bench) for name, subject in (images | rows).items()}
    found["step/mlp-256"] = partial(step, LARGE_MLP, bench)
    found |= {f"serving/{name}": partial(serving, subject, bench) for name, subject in (images | rows).items()}
    found |= {f"profile/{name}": partial(profiling, subject, bench) for name, subject in (images | rows).items()}
    found |= {f"floor/{name}": partial(floor, subject, bench) for name, subject in images.items()}
    found["collect/rows"] = partial(collecting, ROWS, 1_000_000, bench)
    found["collect/wide"] = partial(collecting, WIDE, 1_000 * 256 if bench.on_gpu else 40 * 256, bench)
    found["collect/resnet26"] = partial(collecting, RESNET26, 64 * (400 if bench.on_gpu else 12), bench)
    if bench.on_gpu:
        found["collect/resnet50"] = partial(collecting, RESNET50, 64 * 320, bench)
    found["startup"] = partial(startup, bench)
    found["memory"] = partial(memory, bench)
    found["processes"] = partial(processes, bench)
    return found | _growing(bench)


def _growing(bench: Bench) -> dict[str, Case]:
    rows = (8, 16, 32, 64, 128, 256) if bench.on_gpu else (16, 64, 256, 1024)
    images = (8, 16, 32, 64, 128) if bench.on_gpu else (8, 16, 32, 64)
    curves: dict[str, tuple[growth.Along, Subject, tuple[int, ...]]] = {
        "batch-mlp": (growth.along_batches, MLP, rows),
        "batch-resnet26": (growth.along_batches, RESNET26, images),
        **({"batch-resnet50": (growth.along_batches, RESNET50, images)} if bench.on_gpu else {}),
        "k": (growth.along_k, NARROW, (8, 16, 32, 64, 128)),
        "width": (growth.along_width, NARROW, (128, 256, 512, 1024, 2048)),
        "outputs": (growth.along_outputs, NARROW, (1, 10, 100, 1000)),
        "samples": (growth.along_samples, ROWS, (10_000, 30_000, 100_000, 300_000)),
    }
    return {f"growth/{name}": partial(growth.measure_growth, *curve, bench) for name, curve in curves.items()}


def _quick(bench: Bench) -> dict[str, Case]:
    """Return every kind of case at its smallest size."""
    return {
        "step/mlp": partial(step, TINY_MLP, bench),
        "serving/mlp": partial(serving, TINY_MLP, bench),
        "profile/images": partial(profiling, TINY_IMAGES, bench),
        "floor/images": partial(floor, TINY_IMAGES, bench),
        "collect/rows": partial(collecting, TINY_MLP, 64, bench),
        "startup": partial(startup, bench),
        "memory": partial(memory, bench),
        "processes": partial(processes, bench),
        "growth/batch": partial(growth.measure_growth, growth.along_batches, TINY_MLP, (8, 16), bench),
        "growth/k": partial(growth.measure_growth, growth.along_k, TINY_WIDE, (2, 4), bench),
        "growth/width": partial(growth.measure_growth, growth.along_width, TINY_WIDE, (16, 32), bench),
        "growth/outputs": partial(growth.measure_growth, growth.along_outputs, TINY_WIDE, (1, 3), bench),
        "growth/samples": partial(growth.measure_growth, growth.along_samples, TINY_MLP, (32, 64), bench),
    }
