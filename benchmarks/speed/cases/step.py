"""One step of SSA: regtta's in every way it can be run, against the straightforward one."""

from collections.abc import Callable
from functools import partial

from benchmarks.speed.bench import Bench
from benchmarks.speed.comparing import Maker, compared
from benchmarks.speed.findings import Findings
from benchmarks.speed.straightforward import StraightforwardSSA
from benchmarks.speed.subjects import Ground, Subject, ground
from benchmarks.speed.timing import Contestant
from benchmarks.speed.variants import Stream, adapter_on, executions, over, strict_float32, title_of
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
    """Time the step of ``subject`` in every way."""
    here = ground(subject, bench.device)
    makers, references = _makers(here, bench)
    table = compared(subject.title, makers, references, bench, samples=subject.batch, reading="times as fast")
    return Findings(f"The step: {subject.title}", ABOUT + (ON_GPU if bench.on_gpu else ""), tables=(table,))


def regtta_row(execution: Execution) -> str:
    """The row of regtta's step run in this way."""
    return f"regtta, {title_of(execution)}"


def straightforward(here: Ground) -> Contestant:
    """The straightforward step on the shifted stream."""
    subject = here.subject
    adapter = StraightforwardSSA(here.model, here.source, subject.head, k=subject.k)
    return Contestant(over(adapter.adapt, here.shifted))


def stepping(here: Ground, execution: Execution = PLAIN) -> Contestant:
    """The step of regtta on the shifted stream."""
    stream = Stream(adapter_on(here, execution), here.shifted, learning=True)
    return Contestant(stream, remark=stream.remark)


def _makers(here: Ground, bench: Bench) -> tuple[dict[str, Maker], tuple[str, ...]]:
    images = len(here.subject.shape) == 3
    variants: dict[str, Maker] = {
        regtta_row(execution): partial(stepping, here, execution)
        for execution in executions(bench.device, images=images)
    }
    if not bench.on_gpu:
        return {STRAIGHTFORWARD: partial(straightforward, here), **variants}, (STRAIGHTFORWARD,)
    strict: dict[str, Maker] = {
        STRICT: _strictly(partial(straightforward, here)),
        DEFAULTS: partial(straightforward, here),
        THROUGHOUT: _strictly(partial(stepping, here)),
    }
    return strict | variants, (STRICT, DEFAULTS)


def _strictly(make: Callable[[], Contestant]) -> Maker:
    """What ``make`` makes, without TF32 in convolutions."""

    def made() -> Contestant:
        found = make()
        return Contestant(found.call, strict_float32, found.remark)

    return made
