"""Cost of collecting source statistics, relative to inference over the same batches."""

from dataclasses import replace
from itertools import cycle, islice

import torch

import regtta
from benchmarks.speed.bench import Bench
from benchmarks.speed.comparison import Maker, compare
from benchmarks.speed.findings import Findings
from benchmarks.speed.subjects import Subject, Testbed, make_testbed
from benchmarks.speed.timing import Effort, TimedCall
from benchmarks.speed.variants import bare_forward
from regtta.execution import PLAIN
from regtta.models import FeatureModel
from regtta.statistics import RunningMoments, SourceStatistics

INFERENCE = "inference alone"
ABOUT = """\
One call is a whole pass over so many samples, with the spectrum at its end; the reference runs the model over the
same batches and keeps nothing. The spectrum is worked out once, however many samples there are: its share is shown by
itself."""


def collecting(subject: Subject, samples: int, bench: Bench) -> Findings:
    """Time ``regtta.collect`` over ``samples`` samples."""
    title = f"Collecting: {subject.title}, {samples:,} samples"
    testbed = make_testbed(subject, bench.device)
    makers: dict[str, Maker] = {
        INFERENCE: lambda: inference(testbed, samples, bench),
        "collect": lambda: collection(testbed, samples),
        "of that the spectrum, once": lambda: spectrum(testbed),
    }
    table = compare(
        title, makers, (INFERENCE,), bench, samples=samples, reading="times the time", effort=whole_passes(bench)
    )
    return Findings(title, ABOUT, tables=(table,))


def spectrum(testbed: Testbed) -> TimedCall:
    """Return the eigendecomposition of the covariance, the last part of every collection."""
    batches = islice(cycle(testbed.steady), 4)
    running = RunningMoments()
    forward = FeatureModel(testbed.model, testbed.subject.head)
    with torch.no_grad():
        for batch in batches:
            running.update(forward(batch).features)
    moments = running.finish()

    def decompose() -> None:
        if moments is not None:
            SourceStatistics.from_moments(moments, head=testbed.subject.head, fingerprint="")

    return TimedCall(decompose)


def whole_passes(bench: Bench) -> Effort:
    """Return an effort with one call per sample, since one pass is long enough."""
    rounds = bench.effort.rounds if bench.quick else 7
    return replace(bench.effort, rounds=rounds, sample_seconds=0.0, max_calls=1, warm_calls=1)


def inference(testbed: Testbed, samples: int, bench: Bench) -> TimedCall:
    """Return a pass of the bare model over the batches."""
    forward = bare_forward(testbed.model, PLAIN, bench.device)

    def infer() -> None:
        for batch in islice(cycle(testbed.steady), samples // testbed.subject.batch):
            forward(batch)

    return TimedCall(infer)


def collection(testbed: Testbed, samples: int) -> TimedCall:
    """Return a pass of ``regtta.collect`` over the batches."""

    def collect() -> None:
        batches = islice(cycle(testbed.steady), samples // testbed.subject.batch)
        regtta.collect(testbed.model, batches, head=testbed.subject.head)

    return TimedCall(collect)
