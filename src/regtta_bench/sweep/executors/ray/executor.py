"""Executor on a Ray cluster: its worker pool and how failures are reported."""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic

from regtta._version import __version__
from regtta.errors import RegttaError
from regtta_bench.sweep.executors.base import GLANCE, Readying, Task, Training, all_small, made_by, threads_of
from regtta_bench.sweep.executors.ray import tasks as board
from regtta_bench.sweep.executors.ray.cluster import Claim, claim_of, machines, on_each
from regtta_bench.sweep.executors.ray.tasks import (
    DriversFiles,
    Order,
    Outcome,
    check_machine,
    marked,
    remove_scratch,
    work,
)
from regtta_bench.sweep.interfaces import Kit, Listener, Made, Result, S

logger = logging.getLogger(__name__)


_NO_MODULE = "No module named"
_LONGEST = 200  # most characters of a reason


def raised(error: Exception, where: str = "A machine of the Ray cluster") -> BaseException:
    """Return the original exception of a task, or the error for a machine that cannot unpickle it.

    Args:
        error: Ray's exception that wraps it.
        where: name of the machine for the error message.
    """
    from ray.exceptions import RayError

    cause: BaseException | None = getattr(error, "cause", None)
    # Ray's own errors mean that the task did not start: a module could not be imported on the machine.
    if cause is None or isinstance(cause, RayError) or "failed to import" in str(cause):
        return _unreadable(where, cause or error)
    return cause


def is_loss(error: Exception) -> bool:
    """Return True if a worker or an object it needed was lost, so that the task can be retried."""
    from ray.exceptions import ObjectLostError, RayError, RayTaskError

    if isinstance(error, RayTaskError):  # raised by the task itself; only lost objects are worth a retry
        return isinstance(error.cause, ObjectLostError)
    return isinstance(error, RayError)


def disconnected(error: Exception) -> RegttaError:
    """Return the error for a lost connection to the cluster."""
    if _NO_MODULE in str(error):  # the head node disconnects if it cannot unpickle what a client sends
        return _unreadable("The head of the Ray cluster", error)
    return RegttaError(
        f"The connection to the Ray cluster was lost ({type(error).__name__}). All completed runs are saved: repeat "
        "the command to resume."
    )


def _unreadable(where: str, error: BaseException) -> RegttaError:
    lines = str(error).splitlines() or [type(error).__name__]
    why = next((line for line in lines if _NO_MODULE in line), lines[0]).strip()
    return RegttaError(
        f"{where} cannot unpickle the task ({why[:_LONGEST]}). Install the same version of regtta and the modules of "
        "your own methods on every machine."
    )


TRIES = 3  # attempts per task: the sweep fails when this many workers were lost
_CALLS = 10  # attempts to cancel a task
_POLL_TIMEOUT = 5.0  # timeout in seconds for machines to clean up


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
                ray.wait(cleared, num_returns=len(cleared), timeout=_POLL_TIMEOUT)


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


_EXECUTOR_TIMEOUT = 300.0  # timeout in seconds: starting a process and importing torch from a slow disk takes long


class OnRay:
    """Executor on all machines of the Ray cluster that this process is connected to.

    Args:
        jobs: number of concurrent runs; None for as many as the resources allow.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs

    def best_device(self) -> str:
        """Return ``"cuda"`` if any machine has a GPU, else ``"cpu"``."""
        return "cuda" if any(machine.gpus >= 1 for machine in machines()) else "cpu"

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if data or weights are missing on a machine that has the resources to execute runs."""
        import ray
        from ray.exceptions import RayError

        claim = self._claim(specs, tools)
        try:
            able = [machine for machine in machines() if claim.fits(machine)]
            asked = on_each(able, check_machine, ray.put((tools, specs)), __version__)
            answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_EXECUTOR_TIMEOUT)
        except (ConnectionError, ImportError) as error:  # the head node unpickles the arguments, too
            raise disconnected(error) from error
        for answer in answered:
            try:
                ray.get(answer)
            except RayError as error:
                if not is_loss(error):  # a lost machine takes no part in the sweep
                    raise raised(error, asked[answer].name) from error
        if silent:
            names = ", ".join(asked[answer].name for answer in silent)
            raise RegttaError(f"No answer within {_EXECUTOR_TIMEOUT:.0f} s from {names}. Check that Ray works there.")

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """Yield runs as they complete; tasks of lost workers or machines are executed again."""
        claim = self._claim(specs, tools)
        with marked(tools.models) as mark:
            staff = RayStaff(Order(tools, mark, threads_of(specs, claim.cpus)), claim)
            try:
                yield from made_by(staff, specs, listener)
            finally:
                staff.dismiss()

    def _claim(self, specs: Sequence[S], tools: Kit[S]) -> Claim:
        return claim_of(machines(), self.jobs, device=tools.device, small=all_small(specs))
