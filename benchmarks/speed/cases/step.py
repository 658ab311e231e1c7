"""Speed of one step of SSA: regtta's in every execution, relative to the straightforward implementation."""

from collections.abc import Callable
from functools import partial

from benchmarks.speed.bench import Bench
from benchmarks.speed.comparison import Maker, compare
from benchmarks.speed.findings import Findings
from benchmarks.speed.straightforward import StraightforwardSSA
from benchmarks.speed.subjects import Subject, Testbed, make_testbed
from benchmarks.speed.timing import TimedCall
from benchmarks.speed.variants import Stream, adapter_on, cycle_over, describe_execution, executions, strict_float32
from regtta.execution import PLAIN, Execution

STRAIGHTFORWARD = "straightforward"
STRICT = "straightforward, float32 throughout"
DEFAULTS = "straightforward, torch's defaults"
THROUGHOUT = "regtta, float32 throughout"
ABOUT = """\
A step is a forward pass with BatchNorm by the batch, SSA's loss, its gradients and Adam's update of the affine
parameters. The straightforward one computes gradients of all parameters, keeps nothing to go back to and reads
nothing from the device; regtta's steps are guarded and can be undone."""
ON_GPU = (
    """ On a GPU torch by default lets convolutions round to TF32, so the straightforward step is shown both ways."""
)


def step(subject: Subject, bench: Bench) -> Findings:
    """Time the step of ``subject`` in every execution."""
    testbed = make_testbed(subject, bench.device)
    makers, references = _makers(testbed, bench)
    table = compare(subject.title, makers, references, bench, samples=subject.batch, reading="times as fast")
    return Findings(f"The step: {subject.title}", ABOUT + (ON_GPU if bench.on_gpu else ""), tables=(table,))


def regtta_row(execution: Execution) -> str:
    """Return the name of the row of regtta's step in ``execution``."""
    return f"regtta, {describe_execution(execution)}"


def straightforward_step(testbed: Testbed) -> TimedCall:
    """Return the straightforward step on the shifted stream."""
    subject = testbed.subject
    adapter = StraightforwardSSA(testbed.model, testbed.source, subject.head, k=subject.k)
    return TimedCall(cycle_over(adapter.adapt, testbed.shifted))


def regtta_step(testbed: Testbed, execution: Execution = PLAIN) -> TimedCall:
    """Return regtta's step on the shifted stream."""
    stream = Stream(adapter_on(testbed, execution), testbed.shifted, learning=True)
    return TimedCall(stream, remark=stream.remark)


def _makers(testbed: Testbed, bench: Bench) -> tuple[dict[str, Maker], tuple[str, ...]]:
    images = len(testbed.subject.shape) == 3
    variants: dict[str, Maker] = {
        regtta_row(execution): partial(regtta_step, testbed, execution)
        for execution in executions(bench.device, images=images)
    }
    if not bench.on_gpu:
        return {STRAIGHTFORWARD: partial(straightforward_step, testbed), **variants}, (STRAIGHTFORWARD,)
    strict: dict[str, Maker] = {
        STRICT: _strictly(partial(straightforward_step, testbed)),
        DEFAULTS: partial(straightforward_step, testbed),
        THROUGHOUT: _strictly(partial(regtta_step, testbed)),
    }
    return strict | variants, (STRICT, DEFAULTS)


def _strictly(make: Callable[[], TimedCall]) -> Maker:
    """Return a maker of the same call without TF32 in convolutions."""

    def made() -> TimedCall:
        found = make()
        return TimedCall(found.call, strict_float32, found.remark)

    return made
