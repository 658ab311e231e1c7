"""Executor on a Ray cluster: its worker pool and how failures are reported."""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic

from regtta._version import __version__
from regtta.errors import RegttaError
from regtta_bench.sweep.executors.base import (
    POLL_SECONDS,
    PrepareTask,
    SweepTask,
    TrainingProgress,
    all_models_small,
    execute_on_pool,
    worker_threads,
)
from regtta_bench.sweep.executors.ray.cluster import TaskResources, compute_task_resources, list_machines, run_on_each
from regtta_bench.sweep.executors.ray.tasks import (
    DriverFiles,
    ProgressInbox,
    SweepConfig,
    TaskOutput,
    check_machine,
    execute_task,
    marker_file,
    remove_scratch_folder,
)
from regtta_bench.sweep.interfaces import CompletedRuns, ProgressListener, RunResult, S, WorkerConfig

logger = logging.getLogger(__name__)


_NO_MODULE = "No module named"
_MAX_REASON_LENGTH = 200  # most characters of a reason


def unwrap_task_error(error: Exception, where: str = "A machine of the Ray cluster") -> BaseException:
    """Return the original exception of a task, or the error for a machine that cannot unpickle it.

    Args:
        error: Ray's exception that wraps it.
        where: name of the machine for the error message.
    """
    from ray.exceptions import RayError

    cause: BaseException | None = getattr(error, "cause", None)
    # Ray's own errors mean that the task did not start: a module could not be imported on the machine.
    if cause is None or isinstance(cause, RayError) or "failed to import" in str(cause):
        return _unpickling_error(where, cause or error)
    return cause


def is_worker_loss(error: Exception) -> bool:
    """Return True if a worker or an object it needed was lost, so that the task can be retried."""
    from ray.exceptions import ObjectLostError, RayError, RayTaskError

    if isinstance(error, RayTaskError):  # raised by the task itself; only lost objects are worth a retry
        return isinstance(error.cause, ObjectLostError)
    return isinstance(error, RayError)


def connection_lost_error(error: Exception) -> RegttaError:
    """Return the error for a lost connection to the cluster."""
    if _NO_MODULE in str(error):  # the head node disconnects if it cannot unpickle what a client sends
        return _unpickling_error("The head of the Ray cluster", error)
    return RegttaError(
        f"The connection to the Ray cluster was lost ({type(error).__name__}). All completed runs are saved: repeat "
        "the command to resume."
    )


def _unpickling_error(where: str, error: BaseException) -> RegttaError:
    lines = str(error).splitlines() or [type(error).__name__]
    why = next((line for line in lines if _NO_MODULE in line), lines[0]).strip()
    return RegttaError(
        f"{where} cannot unpickle the task ({why[:_MAX_REASON_LENGTH]}). Install the same version of regtta "
        "and the modules of your own methods on every machine."
    )


MAX_ATTEMPTS = 3  # attempts per task: the sweep fails when this many workers were lost
_CANCEL_ATTEMPTS = 10  # attempts to cancel a task
_CLEANUP_TIMEOUT = 5.0  # timeout in seconds for machines to clean up


@dataclass(frozen=True)
class _Submission(Generic[S]):
    """A submitted task and the number of workers lost while executing it."""

    task: SweepTask[S]
    losses: int = 0


class RayWorkerPool(Generic[S]):
    """Worker pool of one sweep.

    Args:
        config: configuration that all tasks share.
        resources: resources per task.
    """

    def __init__(self, config: SweepConfig[S], resources: TaskResources) -> None:
        import ray

        self._resources, self._marker = resources, config.marker
        self._config = ray.put(config)
        # Without Ray's own retries, which are unbounded when memory is short and could train a model twice.
        self._execute = ray.remote(execute_task).options(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0
        )
        self._progress = ProgressInbox()
        self._files = DriverFiles(config.worker_config.models)
        self._pending: deque[_Submission[S]] = deque()
        self._running: dict[Any, _Submission[S]] = {}
        self._scratch_nodes: set[str] = set()

    def submit(self, task: SweepTask[S]) -> None:
        """Submit a task, to be executed after those submitted before."""
        self._pending.append(_Submission(task))

    def poll(self) -> tuple[SweepTask[S], RunResult] | None:
        """Return the next completed task and its result, or None if none ends in time."""
        import ray
        from ray.exceptions import RayError

        try:
            while self._pending and len(self._running) < self._resources.max_submitted:
                submission = self._pending.popleft()
                references = self._files.references(submission.task.source)
                self._running[self._execute.remote(self._config, self._progress.actor, references, submission.task)] = (
                    submission
                )
            done, _ = ray.wait(list(self._running), timeout=POLL_SECONDS)
        except (RayError, ConnectionError) as error:
            raise connection_lost_error(error) from error
        return self._collect(done[0]) if done else None

    def _collect(self, reference: Any) -> tuple[SweepTask[S], RunResult] | None:
        """Return a completed task and its result; None if the task has to be retried."""
        import ray
        from ray.exceptions import RayError

        submission = self._running.pop(reference)
        try:
            output: TaskOutput = ray.get(reference)
        except RayError as error:
            if not is_worker_loss(error):
                raise unwrap_task_error(error) from error
            self._pending.appendleft(_count_loss(submission, error))
            return None
        except ConnectionError as error:
            raise connection_lost_error(error) from error
        if output.scratch_node is not None:
            self._scratch_nodes.add(output.scratch_node)
        self._files.save(submission.task.source, output.new_files)
        return submission.task, output.result

    def training_progress(self) -> Iterable[TrainingProgress]:
        """Return the training progress reported since the last call."""
        # Pending reports are waited for only once all tasks have ended.
        return self._progress.drain() + self._progress.drain() if not self._running else self._progress.drain(0.01)

    def shutdown(self) -> None:
        """Cancel running tasks and remove temporary folders; machines that do not answer are skipped."""
        import ray
        from ray.exceptions import RayError

        if not ray.is_initialized():
            return
        with suppress(RayError, ConnectionError):
            left = list(self._running)
            for _ in range(_CANCEL_ATTEMPTS):  # a task that is being started may miss the first attempt
                for reference in left:
                    ray.cancel(reference, force=True)
                _, left = ray.wait(left, num_returns=len(left), timeout=1.0) if left else ([], [])
                if not left:
                    break
            ray.kill(self._progress.actor)
            used = [machine for machine in list_machines() if machine.node_id in self._scratch_nodes]
            cleared = list(run_on_each(used, remove_scratch_folder, self._marker))
            if cleared:
                ray.wait(cleared, num_returns=len(cleared), timeout=_CLEANUP_TIMEOUT)


def _count_loss(submission: _Submission[S], error: Exception) -> _Submission[S]:
    """Return the task with one more loss counted; raise if too many workers were lost."""
    task, losses = submission.task, submission.losses + 1
    kind = "the training of" if isinstance(task, PrepareTask) else "a run on"
    about = f"{kind} {task.source.name} ({type(error).__name__})"
    if losses == MAX_ATTEMPTS:
        raise RegttaError(
            f"{MAX_ATTEMPTS} workers were lost one after another during {about}, most likely for lack of memory. All "
            "completed runs are saved: resume with fewer --jobs or on other machines."
        ) from error
    logger.warning("A worker was lost during %s; the task is retried on another.", about)
    return replace(submission, losses=losses)


_CHECK_TIMEOUT = 300.0  # timeout in seconds: starting a process and importing torch from a slow disk takes long


class RayExecutor:
    """Executor on all machines of the Ray cluster that this process is connected to.

    Args:
        jobs: number of concurrent runs; None for as many as the resources allow.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs

    def default_device(self) -> str:
        """Return ``"cuda"`` if any machine has a GPU, else ``"cpu"``."""
        return "cuda" if any(machine.gpus >= 1 for machine in list_machines()) else "cpu"

    def check(self, specs: Sequence[S], config: WorkerConfig[S]) -> None:
        """Raise if data or weights are missing on a machine that has the resources to execute runs."""
        import ray
        from ray.exceptions import RayError

        resources = self._task_resources(specs, config)
        try:
            capable = [machine for machine in list_machines() if resources.fits(machine)]
            pending = run_on_each(capable, check_machine, ray.put((config, specs)), __version__)
            answered, silent = ray.wait(list(pending), num_returns=len(pending), timeout=_CHECK_TIMEOUT)
        except (ConnectionError, ImportError) as error:  # the head node unpickles the arguments, too
            raise connection_lost_error(error) from error
        for answer in answered:
            try:
                ray.get(answer)
            except RayError as error:
                if not is_worker_loss(error):  # a lost machine takes no part in the sweep
                    raise unwrap_task_error(error, pending[answer].name) from error
        if silent:
            names = ", ".join(pending[answer].name for answer in silent)
            raise RegttaError(f"No answer within {_CHECK_TIMEOUT:.0f} s from {names}. Check that Ray works there.")

    def execute(self, specs: Sequence[S], config: WorkerConfig[S], listener: ProgressListener) -> CompletedRuns[S]:
        """Yield runs as they complete; tasks of lost workers or machines are executed again."""
        resources = self._task_resources(specs, config)
        with marker_file(config.models) as marker:
            pool = RayWorkerPool(SweepConfig(config, marker, worker_threads(specs, resources.cpus)), resources)
            try:
                yield from execute_on_pool(pool, specs, listener)
            finally:
                pool.shutdown()

    def _task_resources(self, specs: Sequence[S], config: WorkerConfig[S]) -> TaskResources:
        return compute_task_resources(list_machines(), self.jobs, device=config.device, small=all_models_small(specs))
