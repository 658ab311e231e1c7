"""Cost of serving without a shift: predictions and gated steps relative to a bare forward pass."""

from functools import cache, partial

from benchmarks.speed.bench import Bench
from benchmarks.speed.comparison import Maker, compare
from benchmarks.speed.findings import Findings, Table
from benchmarks.speed.subjects import Subject, Testbed, make_testbed
from benchmarks.speed.timing import TimedCall
from benchmarks.speed.variants import IN_BFLOAT16, Stream, adapter_on, bare_forward, cycle_over, describe_execution
from regtta.adapter import Adapter
from regtta.execution import FAST, PLAIN, Execution
from regtta.guards import DEFAULT, SAFE, Gate, Guard

GATED: tuple[Guard, ...] = (*DEFAULT, Gate())
ABOUT = """\
The stream does not differ from the source, so that a gate refuses every batch. The reference is the model by
itself: eval mode, no gradients, the same device, arithmetic and layout."""


def serving(subject: Subject, bench: Bench) -> Findings:
    """Time predictions and gated steps of ``subject``."""
    testbed = make_testbed(subject, bench.device)
    ways = [(PLAIN, PLAIN)] + ([(FAST, IN_BFLOAT16)] if bench.on_gpu else [])
    tables = tuple(_table(testbed, execution, beside, bench) for execution, beside in ways)
    return Findings(f"Without a shift: {subject.title}", ABOUT, tables=tables)


def _table(testbed: Testbed, execution: Execution, beside: Execution, bench: Bench) -> Table:
    forward = f"bare forward, {describe_execution(beside)}"
    gated, safe = (cache(partial(adapter_on, testbed, execution, guards)) for guards in (GATED, SAFE))
    makers: dict[str, Maker] = {
        forward: lambda: TimedCall(cycle_over(bare_forward(testbed.model, beside, bench.device), testbed.steady)),
        "predict": lambda: TimedCall(cycle_over(gated().predict, testbed.steady)),
        "adapt behind a gate": lambda: _refusing(gated(), testbed),
        "adapt, guarded by SAFE": lambda: _refusing(safe(), testbed),
    }
    return compare(
        f"{testbed.subject.title}, adapter in {describe_execution(execution)}",
        makers,
        (forward,),
        bench,
        samples=testbed.subject.batch,
        reading="times the time",
    )


def _refusing(adapter: Adapter, testbed: Testbed) -> TimedCall:
    stream = Stream(adapter, testbed.steady, learning=False)
    return TimedCall(stream, remark=stream.remark)
