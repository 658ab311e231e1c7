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
from regtta_bench.sweep.executors.base import GLANCE, Task, Training, by_source, made_by, threads_of
from regtta_bench.sweep.interfaces import Kit, Listener, Made, Result, S, Worker


class OnThisMachine:
    """Base class of executors that run on this machine only. Abstract."""

    def best_device(self) -> str:
        """Return ``"cuda"`` if a GPU is available, else ``"cpu"``."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if data or weights that the runs need are missing on this machine."""
        tools.check(specs)


class Here(OnThisMachine):
    """Executor that runs sequentially in the calling process."""

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """Execute the runs grouped by source model, and yield them as they complete."""
        worker, threads = tools.worker(listener.training), torch.get_num_threads()
        torch.set_num_threads(threads_of(specs, threads))
        try:
            for group in by_source(specs):
                for spec in group:
                    yield spec, worker.run(spec)
        finally:
            torch.set_num_threads(threads)


News = queue.Queue[Training]

_PATIENCE = 5.0  # seconds to wait for a terminated process


class Processes(OnThisMachine):
    """Executor with a pool of processes that share the CPU cores evenly.

    Args:
        jobs: number of processes.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """Yield runs as they complete; raises ``RegttaError`` if a process dies."""
        context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
        threads = threads_of(specs, (os.cpu_count() or 1) // self.jobs)
        with context.Manager() as manager:
            news: News = manager.Queue()
            before = set(multiprocessing.active_children())
            initargs = (tools, threads, news)
            with ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin, initargs=initargs) as pool:
                try:
                    yield from made_by(_Pool[S](pool, news), specs, listener)
                except BaseException:
                    # Leaving the pool's context would wait for running tasks, which may take hours.
                    pool.shutdown(wait=False, cancel_futures=True)
                    children = set(multiprocessing.active_children()) - before
                    for child in children:
                        child.terminate()
                    for child in children:
                        child.join(_PATIENCE)
                    raise


class _Pool(Generic[S]):
    """Worker pool of the processes."""

    def __init__(self, pool: ProcessPoolExecutor, news: News) -> None:
        self._pool, self._news = pool, news
        self._ended: queue.SimpleQueue[tuple[Task[S], Future[Result]]] = queue.SimpleQueue()

    def give(self, task: Task[S]) -> None:
        """Submit a task, to be executed after those submitted before."""
        try:
            future = self._pool.submit(_do, task)
        except BrokenProcessPool as error:
            raise _died() from error
        future.add_done_callback(lambda done: self._ended.put((task, done)))

    def ended(self) -> tuple[Task[S], Result] | None:
        """Return the next completed task and its result, or None if none ends in time."""
        try:
            task, future = self._ended.get(timeout=GLANCE)
            return task, future.result()
        except queue.Empty:
            return None
        except BrokenProcessPool as error:
            raise _died() from error

    def trainings(self) -> Iterator[Training]:
        """Return the training progress reported since the last call."""
        while True:
            try:
                yield self._news.get_nowait()
            except queue.Empty:
                return


def _died() -> RegttaError:
    return RegttaError(
        "A process of the sweep died, most likely for lack of memory. All completed runs are saved: resume with fewer "
        "--jobs."
    )


# --- inside a process ----------------------------------------------------------------------------

_worker: Worker[Any] | None = None


def _begin(tools: Kit[Any], threads: int, news: News) -> None:
    """Initialise a process of the pool; its worker is reused across tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on an interrupt the parent process ends the sweep
    global _worker  # noqa: PLW0603 - a pool process keeps its state in globals
    torch.set_num_threads(threads)
    _worker = tools.worker(lambda name, done, total: news.put((name, done, total)))


def _do(task: Task[Any]) -> Result:
    if _worker is None:
        raise RuntimeError("the process pool was not initialised")
    return task.by(_worker)
