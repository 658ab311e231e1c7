"""Running what is missing, in this process or in several, and keeping every result as soon as it is there."""

import multiprocessing
import os
import queue
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from regtta.errors import ForeignFileError, ModelMismatchError, RegttaError
from regtta.experiments.reproduce.workshop import Told
from regtta.experiments.sources import SMALL, KeptSource
from regtta.experiments.store import RunStore, key_of
from regtta.reading import clear_errors

_AT_ONCE = 12  # runs that a process takes on together: they share the data, the model and its statistics
_GLANCE = 0.2  # seconds between two looks at what the processes say


class Spec(Protocol):
    """What specifies one run; told apart by its fields, and can be sent to another process."""

    @property
    def source(self) -> KeptSource:
        """The model it starts from."""

    @property
    def target(self) -> str:
        """What it adapts to: runs of one target share its data."""

    def plain(self) -> dict[str, object]:
        """As JSON has it: the key of the run, with that of its source model under ``"source"``."""


S = TypeVar("S", bound=Spec)
S_contra = TypeVar("S_contra", bound=Spec, contravariant=True)


class Worker(Protocol[S_contra]):
    """Makes runs in one process."""

    def run(self, spec: S_contra) -> dict[str, object]:
        """What came of a run, with the ``"source_fingerprint"`` of the model it was made on."""

    def ready(self, specs: Sequence[S_contra]) -> None:
        """Make what runs on one source model share, so that they find it: the model, and its statistics."""


class Kit(Protocol[S_contra]):
    """What a worker is made from; can be sent to another process."""

    def worker(self, told: Told) -> Worker[S_contra]:
        """One that tells of trainings."""


class Listener(Protocol):
    """Who is told how a sweep goes."""

    def begun(self, runs: int, found: int) -> None:
        """There are ``runs`` to make, beside ``found`` that were made before."""

    def training(self, name: str, done: int, total: int) -> None:
        """A source model has ``done`` of its epochs behind it."""

    def ran(self, spec: Spec, result: dict[str, object]) -> None:
        """A run is made and kept."""


def sweep(specs: Sequence[S], store: RunStore, tools: Kit[S], listener: Listener, *, jobs: int = 1) -> None:
    """Make the runs that the store does not hold.

    Args:
        specs: all that are wanted.
        store: of the results.
        tools: to work with.
        listener: told of all that happens.
        jobs: processes at once; the cores are dealt out among them.
    """
    missing = [spec for spec in specs if spec.plain() not in store]
    listener.begun(len(missing), len(specs) - len(missing))
    if not missing:
        return
    made = _here(missing, tools, listener) if jobs == 1 else _in_processes(missing, tools, listener, jobs)
    trained = _trained(store)
    for spec, result in made:
        _check_same_training(spec, result, trained, store)
        store.add(spec.plain(), result)
        listener.ran(spec, result)


def _trained(store: RunStore) -> dict[str, str]:
    """Which training the runs of each source model were made on."""
    with clear_errors(
        lambda why: ForeignFileError(
            f"{store.path} holds a run that is damaged, or that another version made ({why}). Begin a new folder by "
            "--out."
        )
    ):
        return {key_of(run["specification"]["source"]): str(run["result"]["source_fingerprint"]) for run in store}


def _check_same_training(spec: Spec, result: Mapping[str, object], trained: dict[str, str], store: RunStore) -> None:
    """Refuse to mix two trainings of one source model, whose runs would be compared as if they shared it."""
    mark = str(result["source_fingerprint"])
    if trained.setdefault(spec.source.key, mark) != mark:
        raise ModelMismatchError(
            f"{store.path} holds runs on another training of {spec.source.name}, and methods are compared on the same "
            "model alone. Put the folder of source models back that those runs were made with, or begin a new folder "
            "by --out."
        )


def _threads(specs: Iterable[Spec], jobs: int) -> int:
    """Threads of each process: one where models are so small that more would only wait for each other."""
    if all(spec.source.model in SMALL for spec in specs):
        return 1
    return torch.get_num_threads() if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)


def _here(specs: Sequence[S], tools: Kit[S], listener: Listener) -> Iterator[tuple[S, dict[str, object]]]:
    worker, threads = tools.worker(listener.training), torch.get_num_threads()
    torch.set_num_threads(_threads(specs, 1))
    try:
        for group in _by_source_and_target(specs):
            for spec in group:
                yield spec, worker.run(spec)
    finally:
        torch.set_num_threads(threads)


def _by_source_and_target(specs: Sequence[S]) -> list[list[S]]:
    """Groups that share a source model and a target, those of one source model one after another."""
    groups: dict[KeptSource, dict[str, list[S]]] = {}
    for spec in specs:
        groups.setdefault(spec.source, {}).setdefault(spec.target, []).append(spec)
    return [group for targets in groups.values() for group in targets.values()]


# --- several processes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Training:
    """News from a process: how far a training is."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class _Ran(Generic[S]):
    """News from a process: a run is made."""

    spec: S
    result: dict[str, object]


def _in_processes(
    specs: Sequence[S], tools: Kit[S], listener: Listener, jobs: int
) -> Iterator[tuple[S, dict[str, object]]]:
    """First all source models, so that none is trained twice; then the runs, some at a time."""
    context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
    with context.Manager() as manager:
        news: queue.Queue[_Training | _Ran[S]] = manager.Queue()
        before = set(multiprocessing.active_children())
        begin = (tools, _threads(specs, jobs), news)
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=begin) as pool:
            try:
                prepared = [pool.submit(_prepare, group) for group in _by_source(specs)]
                yield from _watched(prepared, news, listener)
                yield from _watched([pool.submit(_run, group) for group in _shares(specs)], news, listener)
            except BaseException:
                # Leaving the pool would wait for what is still running, which may take hours.
                pool.shutdown(wait=False, cancel_futures=True)
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()
                raise


def _by_source(specs: Sequence[S]) -> list[list[S]]:
    groups: dict[KeptSource, list[S]] = {}
    for spec in specs:
        groups.setdefault(spec.source, []).append(spec)
    return list(groups.values())


def _shares(specs: Sequence[S]) -> list[list[S]]:
    return [
        group[start : start + _AT_ONCE]
        for group in _by_source_and_target(specs)
        for start in range(0, len(group), _AT_ONCE)
    ]


def _watched(
    tasks: Sequence[Future[None]], news: "queue.Queue[_Training | _Ran[S]]", listener: Listener
) -> Iterator[tuple[S, dict[str, object]]]:
    """The results as they come, until all tasks are done; the first error of one ends it."""
    waiting = set(tasks)
    while waiting:
        done, waiting = wait(waiting, timeout=_GLANCE, return_when=FIRST_COMPLETED)
        yield from _heard(news, listener)
        for task in done:
            _check_ended_well(task)
    yield from _heard(news, listener)


def _check_ended_well(task: Future[None]) -> None:
    try:
        task.result()
    except BrokenProcessPool as error:
        raise RegttaError(
            "A process of the sweep died, most likely for want of memory. All runs so far are kept: start again, with "
            "fewer --jobs."
        ) from error


def _heard(news: "queue.Queue[_Training | _Ran[S]]", listener: Listener) -> Iterator[tuple[S, dict[str, object]]]:
    while True:
        try:
            item = news.get_nowait()
        except queue.Empty:
            return
        if isinstance(item, _Ran):
            yield item.spec, item.result
        else:
            listener.training(item.name, item.done, item.total)


_worker: Worker[Any] | None = None
_news: "queue.Queue[_Training | _Ran[Any]] | None" = None


def _begin(tools: Kit[Any], threads: int, news: "queue.Queue[_Training | _Ran[Any]]") -> None:
    """What a process starts with; it keeps its worker from task to task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted sweep is ended by the process that began it
    global _worker, _news  # noqa: PLW0603 - a pool's process has no other place of its own
    torch.set_num_threads(threads)
    _worker = tools.worker(lambda name, done, total: news.put(_Training(name, done, total)))
    _news = news


def _prepare(specs: Sequence[Spec]) -> None:
    if _worker is not None:
        _worker.ready(specs)


def _run(specs: Sequence[Spec]) -> None:
    if _worker is not None and _news is not None:
        for spec in specs:
            _news.put(_Ran(spec, _worker.run(spec)))
