"""Collecting source statistics, against inference over the same batches."""

from dataclasses import replace
from itertools import cycle, islice

import torch

import regtta
from benchmarks.speed.bench import Bench
from benchmarks.speed.comparing import Maker, compared
from benchmarks.speed.findings import Findings
from benchmarks.speed.subjects import Ground, Subject, ground
from benchmarks.speed.timing import Contestant, Effort
from benchmarks.speed.variants import bare
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
    here = ground(subject, bench.device)
    makers: dict[str, Maker] = {
        INFERENCE: lambda: inference(here, samples, bench),
        "collect": lambda: collection(here, samples),
        "of that the spectrum, once": lambda: spectrum(here),
    }
    table = compared(
        title, makers, (INFERENCE,), bench, samples=samples, reading="times the time", effort=whole_passes(bench)
    )
    return Findings(title, ABOUT, tables=(table,))


def spectrum(here: Ground) -> Contestant:
    """What ends every collection: the eigenvalues and eigenvectors of the covariance."""
    batches = islice(cycle(here.steady), 4)
    running = RunningMoments()
    forward = FeatureModel(here.model, here.subject.head)
    with torch.no_grad():
        for batch in batches:
            running.update(forward(batch).features)
    moments = running.finish()

    def decompose() -> None:
        if moments is not None:
            SourceStatistics.from_moments(moments, head=here.subject.head, fingerprint="")

    return Contestant(decompose)


def whole_passes(bench: Bench) -> Effort:
    """A call is long enough by itself."""
    rounds = bench.effort.rounds if bench.quick else 7
    return replace(bench.effort, rounds=rounds, sample_seconds=0.0, most_calls=1, warm_calls=1)


def inference(here: Ground, samples: int, bench: Bench) -> Contestant:
    """The model over the batches, and nothing else."""
    forward = bare(here.model, PLAIN, bench.device)

    def infer() -> None:
        for batch in islice(cycle(here.steady), samples // here.subject.batch):
            forward(batch)

    return Contestant(infer)


def collection(here: Ground, samples: int) -> Contestant:
    """``collect`` over the batches."""

    def collect() -> None:
        batches = islice(cycle(here.steady), samples // here.subject.batch)
        regtta.collect(here.model, batches, head=here.subject.head)

    return Contestant(collect)
