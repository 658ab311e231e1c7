"""Workers of a Ray cluster as a staff: tasks go out, results and source models come back, lost workers are replaced."""

import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic

from regtta.errors import RegttaError
from regtta.experiments.reproduce.crews.elsewhere import GLANCE, Readying, Task, Training
from regtta.experiments.reproduce.crews.on_ray import board
from regtta.experiments.reproduce.crews.on_ray.claiming import Claim
from regtta.experiments.reproduce.crews.on_ray.failures import disconnected, is_loss, raised
from regtta.experiments.reproduce.crews.on_ray.machines import machines, on_each
from regtta.experiments.reproduce.crews.on_ray.source_files import DriversFiles, remove_scratch
from regtta.experiments.reproduce.crews.on_ray.tasks import Order, Outcome, work
from regtta.experiments.reproduce.roles import Result, S

TRIES = 3  # workers that may be lost over one task
_CALLS = 10  # to a task that is to end
_PATIENCE = 5.0  # seconds for machines to clear up

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Given(Generic[S]):
    """A task, and how many workers were lost over it."""

    task: Task[S]
    losses: int = 0


class RayStaff(Generic[S]):
    """The workers of one sweep.

    Args:
        order: what their tasks have in common.
        claim: what each task claims of a machine.
    """

    def __init__(self, order: Order[S], claim: Claim) -> None:
        import ray

        self._claim, self._mark = claim, order.mark
        self._order = ray.put(order)
        # No retries of Ray's own: they would not be bounded where memory is short, and could train a model twice.
        self._work = ray.remote(work).options(num_cpus=claim.cpus, num_gpus=claim.gpus, max_retries=0)
        self._board = board.put_up()
        self._files = DriversFiles(order.tools.models)
        self._waiting: deque[_Given[S]] = deque()
        self._at_work: dict[Any, _Given[S]] = {}
        self._scratch_on: set[str] = set()

    def give(self, task: Task[S]) -> None:
        """Have a task done, after those that were given before."""
        self._waiting.append(_Given(task))

    def ended(self) -> tuple[Task[S], Result] | None:
        """The next task that is done, or None after a moment."""
        import ray
        from ray.exceptions import RayError

        try:
            while self._waiting and len(self._at_work) < self._claim.at_once:
                given = self._waiting.popleft()
                sent = self._files.of(given.task.source)
                self._at_work[self._work.remote(self._order, self._board, sent, given.task)] = given
            done, _ = ray.wait(list(self._at_work), timeout=GLANCE)
        except (RayError, ConnectionError) as error:
            raise disconnected(error) from error
        return self._received(done[0]) if done else None

    def _received(self, reference: Any) -> tuple[Task[S], Result] | None:
        """What came of a task; None where it has to be done again."""
        import ray
        from ray.exceptions import RayError

        given = self._at_work.pop(reference)
        try:
            outcome: Outcome = ray.get(reference)
        except RayError as error:
            if not is_loss(error):
                raise raised(error) from error
            self._waiting.appendleft(_again(given, error))
            return None
        except ConnectionError as error:
            raise disconnected(error) from error
        if outcome.scratch_on is not None:
            self._scratch_on.add(outcome.scratch_on)
        self._files.keep(given.task.source, outcome.made)
        return given.task, outcome.result

    def trainings(self) -> Iterable[Training]:
        """What was told since."""
        return board.read(self._board)

    def dismiss(self) -> None:
        """End what is still at work, and have the machines clear up; whoever does not answer is left alone."""
        import ray
        from ray.exceptions import RayError

        if not ray.is_initialized():
            return
        with suppress(RayError, ConnectionError):
            left = list(self._at_work)
            for _ in range(_CALLS):  # one that is just being started does not hear the first
                for reference in left:
                    ray.cancel(reference, force=True)
                _, left = ray.wait(left, num_returns=len(left), timeout=1.0) if left else ([], [])
                if not left:
                    break
            ray.kill(self._board)
            messy = [machine for machine in machines() if machine.mark in self._scratch_on]
            cleared = list(on_each(messy, remove_scratch, self._mark))
            if cleared:
                ray.wait(cleared, num_returns=len(cleared), timeout=_PATIENCE)


def _again(given: _Given[S], error: Exception) -> _Given[S]:
    """The same task once more, unless too many workers were lost over it."""
    task, losses = given.task, given.losses + 1
    what = "the training of" if isinstance(task, Readying) else "a run on"
    about = f"{what} {task.source.name} ({type(error).__name__})"
    if losses == TRIES:
        raise RegttaError(
            f"{TRIES} workers were lost one after another over {about}, most likely for want of memory. All runs so "
            "far are kept: start again, with fewer --jobs or on other machines."
        ) from error
    logger.warning("A worker was lost over %s; another takes it on.", about)
    return replace(given, losses=losses)
