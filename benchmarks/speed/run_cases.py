"""Sequential runs of cases. Each result is saved at once, so that an interrupted run can be resumed."""

import gc
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.speed.bench import Bench
from benchmarks.speed.catalogue import Case, cases_for
from benchmarks.speed.figures import draw
from benchmarks.speed.record import FILE, Record, resume_record, write
from benchmarks.speed.rendering import page, section
from regtta.errors import OptionError

PAGE = "speed.md"


def run(bench: Bench, *, chosen: Sequence[str] = (), force: bool = False, limit: float = float("inf")) -> list[str]:
    """Run cases and save their findings; return the names of those that failed or were not reached.

    Args:
        bench: configuration of the run.
        chosen: names of cases, or prefixes of names up to a slash; all cases if empty.
        force: run cases again that the record already has.
        limit: time in seconds after which no further case is started.
    """
    bench.out.mkdir(parents=True, exist_ok=True)
    record = resume_record(bench, force=force)
    cases = {
        name: case
        for name, case in select_cases(cases_for(bench), chosen).items()
        if force or name not in record.findings
    }
    end, missed = time.perf_counter() + limit, []
    for name, case in cases.items():
        if time.perf_counter() > end:
            print(f"{name}: not reached within the limit; the same command goes on with it")
            missed.append(name)
            continue
        try:
            with _threads(bench):
                record = _kept(record, name, case, bench.out)
        except Exception:  # a failure must not prevent the other cases
            traceback.print_exc()
            missed.append(name)
    show(record, bench.out)
    return missed


def select_cases(cases: Mapping[str, Case], chosen: Sequence[str]) -> dict[str, Case]:
    """Return the cases that ``chosen`` names; all for an empty sequence."""
    for name in chosen:
        if not any(_means(name, case) for case in cases):
            raise OptionError(f"There is no case {name!r} here. The cases are {', '.join(cases)}.")
    return {case: run for case, run in cases.items() if not chosen or any(_means(name, case) for name in chosen)}


def show(record: Record, out: Path) -> None:
    """Write the page and the figures of ``record``."""
    (out / PAGE).write_text(page(record), encoding="utf-8")
    draw(record, out)


def _kept(record: Record, name: str, case: Case, out: Path) -> Record:
    start = time.perf_counter()
    _tidy()
    record = record.adding(name, case())
    write(record, out / FILE)
    (out / PAGE).write_text(page(record), encoding="utf-8")
    print(section(name, record))
    print(f"({name} took {time.perf_counter() - start:.0f} s)\n", flush=True)
    return record


def _tidy() -> None:
    """Free the memory of earlier cases, and reset torch.compile's limit on recompilations."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.compiler.reset()


@contextmanager
def _threads(bench: Bench) -> Iterator[None]:
    """Set torch's number of threads within the block, on a CPU only."""
    before = torch.get_num_threads()
    if not bench.on_gpu:
        torch.set_num_threads(bench.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _means(name: str, case: str) -> bool:
    return case == name or case.startswith(f"{name}/")
