"""Execution of tasks on the machine of a worker."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch

from regtta._version import __version__
from regtta.errors import FileError, MismatchError
from regtta.experiments.reproduce.crews.elsewhere import Task
from regtta.experiments.reproduce.crews.on_ray.board import Writer
from regtta.experiments.reproduce.crews.on_ray.source_files import Sent, fetch, files_of, scratch, shares_disk
from regtta.experiments.reproduce.roles import Kit, Result, S, Worker


@dataclass(frozen=True)
class Order(Generic[S]):
    """Configuration that all tasks of a sweep share.

    Attributes:
        tools: the driver's worker configuration.
        mark: identifier of the sweep, and name of a marker file in the driver's folder of source models.
        threads: number of threads per worker.
        version: the driver's version of regtta.
    """

    tools: Kit[S]
    mark: str
    threads: int
    version: str = __version__


@dataclass(frozen=True)
class Outcome:
    """Output of a task.

    Attributes:
        result: result of a run; empty for other tasks.
        made: contents of source model files that the driver did not send, by file name.
        scratch_on: Ray's node ID if the machine keeps source models in a temporary folder; None if it shares the
            driver's disk.
    """

    result: Result
    made: dict[str, bytes]
    scratch_on: str | None


def work(order: Order[S], board: Any, sent: Sent, task: Task[S]) -> Outcome:
    """Execute a task on this machine."""
    with _naming_this_machine():
        bench = _bench_of(order, board)
        order.tools.check(task.specs)
        fetch(sent, bench.folder)
        result = task.by(bench.worker)
        bench.writer.put_down()
        made = {path.name: path.read_bytes() for path in files_of(task.source, bench.folder) if path.name not in sent}
        return Outcome(result, made, bench.scratch_on)


def check_machine(asked: tuple[Kit[S], Sequence[S]], version: str) -> None:
    """Raise if this machine has another version of regtta or lacks data or weights that the runs need."""
    with _naming_this_machine():
        _check_version(version)
        tools, specs = asked
        tools.check(specs)


@contextmanager
def _naming_this_machine() -> Iterator[None]:
    """Prefix file errors in a ``with`` block with this machine's name, since the files of other machines may differ."""
    try:
        yield
    except FileError as error:
        raise type(error)(f"On {platform.node()}: {error}") from error


def _check_version(version: str) -> None:
    if version != __version__:
        raise MismatchError(
            f"{platform.node()} has regtta {__version__}, but the sweep was started with {version}. Install that "
            "version there."
        )


# --- state of a process, kept between tasks ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Bench:
    mark: str
    folder: Path
    scratch_on: str | None
    writer: Writer
    worker: Worker[Any]


_bench: _Bench | None = None


def _bench_of(order: Order[Any], board: Any) -> _Bench:
    global _bench  # noqa: PLW0603 - a Ray process keeps its state in globals
    if _bench is None or _bench.mark != order.mark:
        _bench = None  # free the memory first: two workers may not fit
        _bench = _made(order, board)
    return _bench


def _made(order: Order[Any], board: Any) -> _Bench:
    import ray

    _check_version(order.version)
    torch.set_num_threads(order.threads)
    shared = shares_disk(order.tools.models, order.mark)
    folder = order.tools.models if shared else scratch(order.mark)
    scratch_on = None if shared else ray.get_runtime_context().get_node_id()
    writer = Writer(board)
    return _Bench(order.mark, folder, scratch_on, writer, order.tools.at(folder).worker(writer))
