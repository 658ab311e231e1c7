"""Executors on this machine: in this process, or in several."""

import multiprocessing
import os
import queue
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic

import torch

from regtta.errors import RegttaError
from regtta_bench.sweep.executors.base import (
    POLL_SECONDS,
    SweepTask,
    TrainingProgress,
    execute_on_pool,
    group_by_source,
    worker_threads,
)
from regtta_bench.sweep.interfaces import CompletedRuns, ProgressListener, RunResult, S, Worker, WorkerConfig


class LocalExecutor:
    """Base class of executors that run on this machine only. Abstract."""

    def default_device(self) -> str:
        """Return ``"cuda"`` if a GPU is available, else ``"cpu"``."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def check(self, specs: Sequence[S], config: WorkerConfig[S]) -> None:
        """Raise if data or weights that the runs need are missing on this machine."""
        config.check(specs)


class SequentialExecutor(LocalExecutor):
    """Executor that runs sequentially in the calling process."""

    def execute(self, specs: Sequence[S], config: WorkerConfig[S], listener: ProgressListener) -> CompletedRuns[S]:
        """Execute the runs grouped by source model, and yield them as they complete."""
        worker, threads = config.make_worker(listener.on_training), torch.get_num_threads()
        torch.set_num_threads(worker_threads(specs, threads))
        try:
            for group in group_by_source(specs):
                for spec in group:
                    yield spec, worker.run(spec)
        finally:
            torch.set_num_threads(threads)


ProgressQueue = queue.Queue[TrainingProgress]

_JOIN_SECONDS = 5.0  # seconds to wait for a terminated process


class ProcessExecutor(LocalExecutor):
    """Executor with a pool of processes that share the CPU cores evenly.

    Args:
        jobs: number of processes.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def execute(self, specs: Sequence[S], config: WorkerConfig[S], listener: ProgressListener) -> CompletedRuns[S]:
        """Yield runs as they complete; raises ``RegttaError`` if a process dies."""
        context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
        threads = worker_threads(specs, (os.cpu_count() or 1) // self.jobs)
        with context.Manager() as manager:
            progress_queue: ProgressQueue = manager.Queue()
            before = set(multiprocessing.active_children())
            initargs = (config, threads, progress_queue)
            with ProcessPoolExecutor(
                self.jobs, mp_context=context, initializer=_initialize_process, initargs=initargs
            ) as pool:
                try:
                    yield from execute_on_pool(_ProcessWorkerPool[S](pool, progress_queue), specs, listener)
                except BaseException:
                    # Leaving the pool's context would wait for running tasks, which may take hours.
                    pool.shutdown(wait=False, cancel_futures=True)
                    children = set(multiprocessing.active_children()) - before
                    for child in children:
                        child.terminate()
                    for child in children:
                        child.join(_JOIN_SECONDS)
                    raise


class _ProcessWorkerPool(Generic[S]):
    """Worker pool of the processes."""

    def __init__(self, pool: ProcessPoolExecutor, progress_queue: ProgressQueue) -> None:
        self._pool, self._progress_queue = pool, progress_queue
        self._completed: queue.SimpleQueue[tuple[SweepTask[S], Future[RunResult]]] = queue.SimpleQueue()

    def submit(self, task: SweepTask[S]) -> None:
        """Submit a task, to be executed after those submitted before."""
        try:
            future = self._pool.submit(_execute_task, task)
        except BrokenProcessPool as error:
            raise _process_died_error() from error
        future.add_done_callback(lambda done: self._completed.put((task, done)))

    def poll(self) -> tuple[SweepTask[S], RunResult] | None:
        """Return the next completed task and its result, or None if none ends in time."""
        try:
            task, future = self._completed.get(timeout=POLL_SECONDS)
            return task, future.result()
        except queue.Empty:
            return None
        except BrokenProcessPool as error:
            raise _process_died_error() from error

    def training_progress(self) -> Iterator[TrainingProgress]:
        """Return the training progress reported since the last call."""
        while True:
            try:
                yield self._progress_queue.get_nowait()
            except queue.Empty:
                return


def _process_died_error() -> RegttaError:
    return RegttaError(
        "A process of the sweep died, most likely for lack of memory. All completed runs are saved: resume with fewer "
        "--jobs."
    )


# --- inside a process ----------------------------------------------------------------------------

_worker: Worker[Any] | None = None


def _initialize_process(config: WorkerConfig[Any], threads: int, progress_queue: ProgressQueue) -> None:
    """Initialise a process of the pool; its worker is reused across tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on an interrupt the parent process ends the sweep
    global _worker  # noqa: PLW0603 - a pool process keeps its state in globals
    torch.set_num_threads(threads)
    _worker = config.make_worker(lambda name, done, total: progress_queue.put((name, done, total)))


def _execute_task(task: SweepTask[Any]) -> RunResult:
    if _worker is None:
        raise RuntimeError("the process pool was not initialised")
    return task.execute(_worker)
