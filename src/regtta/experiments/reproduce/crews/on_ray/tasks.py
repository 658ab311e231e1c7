"""What happens on the machine of a worker."""

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
    """What all tasks of a sweep have in common.

    Attributes:
        tools: the driver's.
        mark: of the sweep; a file of that name lies in the driver's folder of source models.
        threads: of a worker.
        version: the driver's, of regtta.
    """

    tools: Kit[S]
    mark: str
    threads: int
    version: str = __version__


@dataclass(frozen=True)
class Outcome:
    """What came of a task.

    Attributes:
        result: of a run.
        made: files of source models that the driver did not send, by name.
        scratch_on: Ray's mark of the machine, where it keeps source models in a folder of its own.
    """

    result: Result
    made: dict[str, bytes]
    scratch_on: str | None


def work(order: Order[S], board: Any, sent: Sent, task: Task[S]) -> Outcome:
    """Do a task."""
    with _naming_this_machine():
        bench = _bench_of(order, board)
        order.tools.check(task.specs)
        fetch(sent, bench.folder)
        result = task.by(bench.worker)
        bench.writer.put_down()
        made = {path.name: path.read_bytes() for path in files_of(task.source, bench.folder) if path.name not in sent}
        return Outcome(result, made, bench.scratch_on)


def check_machine(asked: tuple[Kit[S], Sequence[S]], version: str) -> None:
    """Raise if runs cannot be made on this machine with such tools."""
    with _naming_this_machine():
        _check_version(version)
        tools, specs = asked
        tools.check(specs)


@contextmanager
def _naming_this_machine() -> Iterator[None]:
    """Say which machine it is where something about its files is wrong: others may be well."""
    try:
        yield
    except FileError as error:
        raise type(error)(f"On {platform.node()}: {error}") from error


def _check_version(version: str) -> None:
    if version != __version__:
        raise MismatchError(
            f"{platform.node()} has regtta {__version__}, and the sweep was begun with {version}. Install that there."
        )


# --- what a process keeps from task to task ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Bench:
    mark: str
    folder: Path
    scratch_on: str | None
    writer: Writer
    worker: Worker[Any]


_bench: _Bench | None = None


def _bench_of(order: Order[Any], board: Any) -> _Bench:
    global _bench  # noqa: PLW0603 - a process of Ray's has no other place of its own
    if _bench is None or _bench.mark != order.mark:
        _bench = None  # two at once may be too much
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
