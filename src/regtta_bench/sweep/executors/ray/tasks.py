"""Tasks on Ray workers, with the source models and progress messages they exchange."""

import platform
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch

from regtta._version import __version__
from regtta.errors import FileError, MismatchError
from regtta.persistence import atomic_write
from regtta_bench.sweep.executors.base import Task
from regtta_bench.sweep.interfaces import Kit, Result, S, Worker
from regtta_bench.sweep.source_models import KeptSource, SourceModels

Sent = dict[str, Any]  # Ray's reference to a file's bytes, by file name


class DriversFiles:
    """Files in the driver's folder of source models, with Ray's references to those already sent.

    Args:
        folder: the folder of source models.
    """

    def __init__(self, folder: Path) -> None:
        self._models = SourceModels(folder)
        self._sent: dict[str, Sent] = {}
        self._up_to_date: set[str] = set()  # keys of source models without new files

    def of(self, source: KeptSource) -> Sent:
        """Return references to all files of a source model, for workers to fetch."""
        import ray

        sent = self._sent.setdefault(source.key, {})
        if source.key not in self._up_to_date:
            self._up_to_date.add(source.key)
            new = [path for path in files_of(source, self._models.folder) if path.name not in sent]
            sent |= {path.name: ray.put(path.read_bytes()) for path in new}
        return sent

    def keep(self, source: KeptSource, made: Mapping[str, bytes]) -> None:
        """Write the files that a worker made for a source model; existing files are kept."""
        for name, content in made.items():
            _write(self._models.folder / Path(name).name, content)
        if made:
            self._up_to_date.discard(source.key)


def files_of(source: KeptSource, folder: Path) -> list[Path]:
    """Return the files of a model and its statistics in ``folder``, without training checkpoints."""
    return sorted(folder.glob(f"{SourceModels(folder).path(source).stem}*.safetensors"))


def fetch(sent: Sent, folder: Path) -> None:
    """Write the sent files to ``folder``, except those that exist."""
    import ray

    for name, reference in sent.items():
        if not (folder / name).exists():
            _write(folder / name, ray.get(reference))


def _write(path: Path, content: bytes) -> None:
    if not path.exists():
        with atomic_write(path) as draft:
            draft.write_bytes(content)


# --- folders of workers --------------------------------------------------------------------------


@contextmanager
def marked(folder: Path) -> Iterator[str]:
    """Yield the name of a marker file in ``folder`` kept during the block; machines that see it share the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".sweep-{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


def shares_disk(folder: Path, mark: str) -> bool:
    """Return True if ``folder`` on this machine is the driver's."""
    return (folder / mark).exists()


def scratch(mark: str) -> Path:
    """Return the sweep's temporary folder of source models, for a machine that does not share the driver's disk."""
    folder = Path(tempfile.gettempdir()) / f"regtta{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def remove_scratch(mark: str) -> None:
    """Remove the folder of :func:`scratch`."""
    shutil.rmtree(scratch(mark), ignore_errors=True)


_PATIENCE = 5.0  # seconds; progress reports must not delay the sweep


class AlarmSet:
    """Actor that buffers progress reports in a process of its own."""

    def __init__(self) -> None:
        self._news: list[tuple[str, int, int]] = []

    def tell(self, name: str, done: int, total: int) -> None:
        """Append the progress of a training."""
        self._news.append((name, done, total))

    def take(self) -> list[tuple[str, int, int]]:
        """Return the reports since the last call and clear the buffer."""
        news, self._news = self._news, []
        return news


def put_up() -> Any:
    """Start the actor on any machine of the cluster; Ray restarts it if it is lost."""
    import ray

    return ray.remote(AlarmSet).options(num_cpus=0, max_restarts=-1).remote()


def read(board: Any) -> Iterable[tuple[str, int, int]]:
    """Return the reports since the last call; none if the actor does not respond."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError

    with suppress(RayActorError, GetTimeoutError, ConnectionError):
        news: list[tuple[str, int, int]] = ray.get(board.take.remote(), timeout=_PATIENCE)
        return news
    return []


class Writer:
    """Callback of a worker that sends its training progress to the actor."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._last: list[Any] = []

    def __call__(self, name: str, done: int, total: int) -> None:
        """Report the progress of a training without blocking."""
        self._last = [self._board.tell.remote(name, done, total)]

    def put_down(self) -> None:
        """Wait until the last report has arrived, up to a timeout."""
        import ray

        if self._last:
            ray.wait(self._last, timeout=_PATIENCE)
            self._last = []


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
