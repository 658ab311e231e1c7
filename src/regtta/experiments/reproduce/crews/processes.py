"""Several processes on this machine."""

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
from regtta.experiments.reproduce.crews.dealing import threads_of
from regtta.experiments.reproduce.crews.elsewhere import GLANCE, Task, Training, made_by
from regtta.experiments.reproduce.crews.here import OnThisMachine
from regtta.experiments.reproduce.roles import Kit, Listener, Made, Result, S, Worker

News = queue.Queue[Training]

_PATIENCE = 5.0  # seconds for a process that was told to end


class Processes(OnThisMachine):
    """Processes that the cores are dealt out among.

    Args:
        jobs: how many.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """The runs as they are made; a process that dies ends it with an error."""
        context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
        threads = threads_of(specs, (os.cpu_count() or 1) // self.jobs)
        with context.Manager() as manager:
            news: News = manager.Queue()
            before = set(multiprocessing.active_children())
            begin = (tools, threads, news)
            with ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin, initargs=begin) as pool:
                try:
                    yield from made_by(_Pool[S](pool, news), specs, listener)
                except BaseException:
                    # Leaving the pool would wait for what is still running, which may take hours.
                    pool.shutdown(wait=False, cancel_futures=True)
                    children = set(multiprocessing.active_children()) - before
                    for child in children:
                        child.terminate()
                    for child in children:
                        child.join(_PATIENCE)
                    raise


class _Pool(Generic[S]):
    """The processes as a staff."""

    def __init__(self, pool: ProcessPoolExecutor, news: News) -> None:
        self._pool, self._news = pool, news
        self._ended: queue.SimpleQueue[tuple[Task[S], Future[Result]]] = queue.SimpleQueue()

    def give(self, task: Task[S]) -> None:
        """Have a task done, after those that were given before."""
        try:
            future = self._pool.submit(_do, task)
        except BrokenProcessPool as error:
            raise _died() from error
        future.add_done_callback(lambda done: self._ended.put((task, done)))

    def ended(self) -> tuple[Task[S], Result] | None:
        """The next task that is done, or None after a moment."""
        try:
            task, future = self._ended.get(timeout=GLANCE)
            return task, future.result()
        except queue.Empty:
            return None
        except BrokenProcessPool as error:
            raise _died() from error

    def trainings(self) -> Iterator[Training]:
        """What was told since."""
        while True:
            try:
                yield self._news.get_nowait()
            except queue.Empty:
                return


def _died() -> RegttaError:
    return RegttaError(
        "A process of the sweep died, most likely for want of memory. All runs so far are kept: start again, with "
        "fewer --jobs."
    )


# --- inside a process ----------------------------------------------------------------------------

_worker: Worker[Any] | None = None


def _begin(tools: Kit[Any], threads: int, news: News) -> None:
    """What a process starts with; it keeps its worker from task to task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted sweep is ended by the process that began it
    global _worker  # noqa: PLW0603 - a pool's process has no other place of its own
    torch.set_num_threads(threads)
    _worker = tools.worker(lambda name, done, total: news.put((name, done, total)))


def _do(task: Task[Any]) -> Result:
    if _worker is None:
        raise RuntimeError("a process of the pool was not begun")
    return task.by(_worker)
