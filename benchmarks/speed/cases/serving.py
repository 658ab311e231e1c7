"""What being ready to adapt costs where there is no shift: predictions and gated steps over a bare forward pass."""

from functools import cache, partial

from benchmarks.speed.bench import Bench
from benchmarks.speed.comparing import Maker, compared
from benchmarks.speed.findings import Findings, Table
from benchmarks.speed.subjects import Ground, Subject, ground
from benchmarks.speed.timing import Contestant
from benchmarks.speed.variants import IN_BFLOAT16, Stream, adapter_on, bare, over, title_of
from regtta.adapter import Adapter
from regtta.execution import FAST, PLAIN, Execution
from regtta.guards import DEFAULT, SAFE, Gate, Guard

GATED: tuple[Guard, ...] = (*DEFAULT, Gate())
ABOUT = """\
The stream does not differ from the source, so that a gate refuses every batch. The reference is the model by
itself: eval mode, no gradients, the same device, arithmetic and layout."""


def serving(subject: Subject, bench: Bench) -> Findings:
    """Time predictions and gated steps of ``subject``."""
    here = ground(subject, bench.device)
    ways = [(PLAIN, PLAIN)] + ([(FAST, IN_BFLOAT16)] if bench.on_gpu else [])
    tables = tuple(_table(here, execution, beside, bench) for execution, beside in ways)
    return Findings(f"Without a shift: {subject.title}", ABOUT, tables=tables)


def _table(here: Ground, execution: Execution, beside: Execution, bench: Bench) -> Table:
    forward = f"bare forward, {title_of(beside)}"
    gated, safe = (cache(partial(adapter_on, here, execution, guards)) for guards in (GATED, SAFE))
    makers: dict[str, Maker] = {
        forward: lambda: Contestant(over(bare(here.model, beside, bench.device), here.steady)),
        "predict": lambda: Contestant(over(gated().predict, here.steady)),
        "adapt behind a gate": lambda: _refusing(gated(), here),
        "adapt, guarded by SAFE": lambda: _refusing(safe(), here),
    }
    return compared(
        f"{here.subject.title}, adapter in {title_of(execution)}",
        makers,
        (forward,),
        bench,
        samples=here.subject.batch,
        reading="times the time",
    )


def _refusing(adapter: Adapter, here: Ground) -> Contestant:
    stream = Stream(adapter, here.steady, learning=False)
    return Contestant(stream, remark=stream.remark)
