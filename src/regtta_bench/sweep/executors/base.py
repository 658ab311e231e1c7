"""Interface of executors that make runs, and what local processes and Ray share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from regtta_bench.sweep.interfaces import Listener, Made, Result, S, Spec, Worker
from regtta_bench.sweep.source_models import SMALL, KeptSource


def by_source(specs: Sequence[S]) -> list[list[S]]:
    """Group runs by source model; within a group, runs on one target are adjacent since they share its data."""
    groups: dict[KeptSource, dict[str, list[S]]] = {}
    for spec in specs:
        groups.setdefault(spec.source, {}).setdefault(spec.target, []).append(spec)
    return [[spec for target in targets.values() for spec in target] for targets in groups.values()]


def all_small(specs: Iterable[Spec]) -> bool:
    """Return True if all models are so small that several threads would slow them down."""
    return all(spec.source.model in SMALL for spec in specs)


def threads_of(specs: Iterable[Spec], cores: int) -> int:
    """Return the number of threads for a worker with ``cores`` cores to itself."""
    return 1 if all_small(specs) else max(1, cores)


GLANCE = 0.2  # polling interval in seconds

Training = tuple[str, int, int]  # name of the source model, epochs done, epochs in total


@dataclass(frozen=True)
class Readying(Generic[S]):
    """Task that prepares what all runs on one source model share.

    Attributes:
        specs: the runs on the source model.
    """

    specs: tuple[S, ...]

    @property
    def source(self) -> KeptSource:
        """Specification of the source model."""
        return self.specs[0].source

    def by(self, worker: Worker[S]) -> Result:
        """Execute the task on ``worker``; the result is empty, as its output is files."""
        worker.ready(self.specs)
        return {}


@dataclass(frozen=True)
class Running(Generic[S]):
    """Task that executes one run.

    Attributes:
        spec: specification of the run.
    """

    spec: S

    @property
    def source(self) -> KeptSource:
        """Specification of the source model."""
        return self.spec.source

    @property
    def specs(self) -> tuple[S, ...]:
        """The run as a tuple of one."""
        return (self.spec,)

    def by(self, worker: Worker[S]) -> Result:
        """Execute the run on ``worker`` and return its result."""
        return worker.run(self.spec)


Task = Readying[S] | Running[S]


class Staff(Protocol[S]):
    """Pool of workers in other processes; each task is executed by exactly one of them."""

    def give(self, task: Task[S]) -> None:
        """Submit a task, to be executed after those submitted before."""

    def ended(self) -> tuple[Task[S], Result] | None:
        """Return a completed task and its result; None if none ends within :data:`GLANCE`; raises the task's error."""

    def trainings(self) -> Iterable[Training]:
        """Return the training progress reported since the last call."""


def made_by(staff: Staff[S], specs: Sequence[S], listener: Listener) -> Made[S]:
    """Execute runs on a worker pool and yield them as they complete.

    Source models are prepared first, so that none is trained twice; the runs on a source model are submitted as soon
    as it is ready, ordered so that consecutive runs of a worker share model and data.
    """
    groups = by_source(specs)
    for group in groups:
        staff.give(Readying(tuple(group)))
    unready, left = len(groups), len(specs)
    while left:
        ended = staff.ended()
        if unready:
            for training in staff.trainings():
                listener.training(*training)
        if ended is None:
            continue
        task, result = ended
        if isinstance(task, Running):
            left -= 1
            yield task.spec, result
            continue
        unready -= 1
        for spec in task.specs:
            staff.give(Running(spec))
