"""What a sweep asks of workers in other processes, and in what order, wherever those processes are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from regtta.experiments.reproduce.crews.dealing import by_source
from regtta.experiments.reproduce.roles import Listener, Made, Result, S, Worker
from regtta.experiments.sources import KeptSource

GLANCE = 0.2  # seconds between two looks at what the workers say

Training = tuple[str, int, int]  # the name of a source model, epochs done, and in all


@dataclass(frozen=True)
class Readying(Generic[S]):
    """Work for one worker: what all runs on one source model share.

    Attributes:
        specs: those runs.
    """

    specs: tuple[S, ...]

    @property
    def source(self) -> KeptSource:
        """The source model."""
        return self.specs[0].source

    def by(self, worker: Worker[S]) -> Result:
        """Have it done; nothing comes of it but files."""
        worker.ready(self.specs)
        return {}


@dataclass(frozen=True)
class Running(Generic[S]):
    """Work for one worker: a run.

    Attributes:
        spec: of the run.
    """

    spec: S

    @property
    def source(self) -> KeptSource:
        """The source model it starts from."""
        return self.spec.source

    @property
    def specs(self) -> tuple[S, ...]:
        """The run."""
        return (self.spec,)

    def by(self, worker: Worker[S]) -> Result:
        """Have it done, and say what came of it."""
        return worker.run(self.spec)


Task = Readying[S] | Running[S]


class Staff(Protocol[S]):
    """Workers in other processes. A task is done by any of them, and by one alone."""

    def give(self, task: Task[S]) -> None:
        """Have a task done, after those that were given before."""

    def ended(self) -> tuple[Task[S], Result] | None:
        """A task that is done and what came of it, or None if none ends within :data:`GLANCE`; raises its error."""

    def trainings(self) -> Iterable[Training]:
        """How far the trainings are, since this was last asked."""


def made_by(staff: Staff[S], specs: Sequence[S], listener: Listener) -> Made[S]:
    """The runs as ``staff`` makes them.

    First all source models, so that none is trained twice. The runs on one are given out as soon as it is there; they
    come one at a time, in an order in which a worker's next run shares model and data with its last.
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
