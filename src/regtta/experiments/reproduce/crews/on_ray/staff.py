"""Worker pool on a Ray cluster: submits tasks, receives results and source models, and retries after lost workers."""

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

TRIES = 3  # attempts per task: the sweep fails when this many workers were lost
_CALLS = 10  # attempts to cancel a task
_PATIENCE = 5.0  # timeout in seconds for machines to clean up

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Given(Generic[S]):
    """A submitted task and the number of workers lost while executing it."""

    task: Task[S]
    losses: int = 0


class RayStaff(Generic[S]):
    """Worker pool of one sweep.

    Args:
        order: configuration that all tasks share.
        claim: resources per task.
    """

    def __init__(self, order: Order[S], claim: Claim) -> None:
        import ray

        self._claim, self._mark = claim, order.mark
        self._order = ray.put(order)
        # Without Ray's own retries, which are unbounded when memory is short and could train a model twice.
        self._work = ray.remote(work).options(num_cpus=claim.cpus, num_gpus=claim.gpus, max_retries=0)
        self._board = board.put_up()
        self._files = DriversFiles(order.tools.models)
        self._waiting: deque[_Given[S]] = deque()
        self._at_work: dict[Any, _Given[S]] = {}
        self._scratch_on: set[str] = set()

    def give(self, task: Task[S]) -> None:
        """Submit a task, to be executed after those submitted before."""
        self._waiting.append(_Given(task))

    def ended(self) -> tuple[Task[S], Result] | None:
        """Return the next completed task and its result, or None if none ends in time."""
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
        """Return a completed task and its result; None if the task has to be retried."""
        import ray
        from ray.exceptions import RayError

        given = self._at_work.pop(reference)
        try:
            outcome: Outcome = ray.get(reference)
        except RayError as error:
            if not is_loss(error):
                raise raised(error) from error
            self._waiting.appendleft(_retried(given, error))
            return None
        except ConnectionError as error:
            raise disconnected(error) from error
        if outcome.scratch_on is not None:
            self._scratch_on.add(outcome.scratch_on)
        self._files.keep(given.task.source, outcome.made)
        return given.task, outcome.result

    def trainings(self) -> Iterable[Training]:
        """Return the training progress reported since the last call."""
        return board.read(self._board)

    def dismiss(self) -> None:
        """Cancel running tasks and remove temporary folders; machines that do not answer are skipped."""
        import ray
        from ray.exceptions import RayError

        if not ray.is_initialized():
            return
        with suppress(RayError, ConnectionError):
            left = list(self._at_work)
            for _ in range(_CALLS):  # a task that is being started may miss the first attempt
                for reference in left:
                    ray.cancel(reference, force=True)
                _, left = ray.wait(left, num_returns=len(left), timeout=1.0) if left else ([], [])
                if not left:
                    break
            ray.kill(self._board)
            used = [machine for machine in machines() if machine.mark in self._scratch_on]
            cleared = list(on_each(used, remove_scratch, self._mark))
            if cleared:
                ray.wait(cleared, num_returns=len(cleared), timeout=_PATIENCE)


def _retried(given: _Given[S], error: Exception) -> _Given[S]:
    """Return the task with one more loss counted; raise if too many workers were lost."""
    task, losses = given.task, given.losses + 1
    kind = "the training of" if isinstance(task, Readying) else "a run on"
    about = f"{kind} {task.source.name} ({type(error).__name__})"
    if losses == TRIES:
        raise RegttaError(
            f"{TRIES} workers were lost one after another during {about}, most likely for lack of memory. All "
            "completed runs are saved: resume with fewer --jobs or on other machines."
        ) from error
    logger.warning("A worker was lost during %s; the task is retried on another.", about)
    return replace(given, losses=losses)
