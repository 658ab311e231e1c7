"""Tasks and worker pools of a sweep, shared by local processes and Ray."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from regtta_bench.sweep.interfaces import CompletedRuns, ProgressListener, RunResult, S, Spec, Worker
from regtta_bench.sweep.source_models import SMALL_MODELS, CachedSource


def group_by_source(specs: Sequence[S]) -> list[list[S]]:
    """Group runs by source model; within a group, runs on one target are adjacent since they share its data."""
    groups: dict[CachedSource, dict[str, list[S]]] = {}
    for spec in specs:
        groups.setdefault(spec.source, {}).setdefault(spec.target, []).append(spec)
    return [[spec for target in targets.values() for spec in target] for targets in groups.values()]


def all_models_small(specs: Iterable[Spec]) -> bool:
    """Return True if all models are so small that several threads would slow them down."""
    return all(spec.source.model in SMALL_MODELS for spec in specs)


def worker_threads(specs: Iterable[Spec], cores: int) -> int:
    """Return the number of threads for a worker with ``cores`` cores to itself."""
    return 1 if all_models_small(specs) else max(1, cores)


POLL_SECONDS = 0.2  # polling interval in seconds

TrainingProgress = tuple[str, int, int]  # name of the source model, epochs done, epochs in total


@dataclass(frozen=True)
class PrepareTask(Generic[S]):
    """Task that prepares what all runs on one source model share.

    Attributes:
        specs: the runs on the source model.
    """

    specs: tuple[S, ...]

    @property
    def source(self) -> CachedSource:
        """Specification of the source model."""
        return self.specs[0].source

    def execute(self, worker: Worker[S]) -> RunResult:
        """Execute the task on ``worker``; the result is empty, as its output is files."""
        worker.prepare(self.specs)
        return {}


@dataclass(frozen=True)
class RunTask(Generic[S]):
    """Task that executes one run.

    Attributes:
        spec: specification of the run.
    """

    spec: S

    @property
    def source(self) -> CachedSource:
        """Specification of the source model."""
        return self.spec.source

    @property
    def specs(self) -> tuple[S, ...]:
        """The run as a tuple of one."""
        return (self.spec,)

    def execute(self, worker: Worker[S]) -> RunResult:
        """Execute the run on ``worker`` and return its result."""
        return worker.run(self.spec)


SweepTask = PrepareTask[S] | RunTask[S]


class WorkerPool(Protocol[S]):
    """Pool of workers in other processes; each task is executed by exactly one of them."""

    def submit(self, task: SweepTask[S]) -> None:
        """Submit a task, to be executed after those submitted before."""

    def poll(self) -> tuple[SweepTask[S], RunResult] | None:
        """Return a completed task and its result, or None after :data:`POLL_SECONDS`; raise the task's error."""

    def training_progress(self) -> Iterable[TrainingProgress]:
        """Return the training progress reported since the last call."""


def execute_on_pool(pool: WorkerPool[S], specs: Sequence[S], listener: ProgressListener) -> CompletedRuns[S]:
    """Execute runs on a worker pool and yield them as they complete.

    Source models are prepared first, so that none is trained twice; the runs on a source model are submitted as soon
    as it is ready, ordered so that consecutive runs of a worker share model and data.
    """
    groups = group_by_source(specs)
    for group in groups:
        pool.submit(PrepareTask(tuple(group)))
    left = len(specs)
    while left:
        completed = pool.poll()
        for progress in pool.training_progress():
            listener.on_training(*progress)
        if completed is None:
            continue
        task, result = completed
        if isinstance(task, RunTask):
            left -= 1
            yield task.spec, result
            continue
        for spec in task.specs:
            pool.submit(RunTask(spec))
    for progress in pool.training_progress():
        listener.on_training(*progress)
