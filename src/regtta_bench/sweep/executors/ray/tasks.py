"""Tasks on Ray workers, with the source models and progress messages they exchange."""

import platform
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch

from regtta._version import __version__
from regtta.errors import FileError, MismatchError
from regtta.persistence import atomic_write
from regtta_bench.sweep.executors.base import SweepTask
from regtta_bench.sweep.interfaces import RunResult, S, Worker, WorkerConfig
from regtta_bench.sweep.source_models import CachedSource, SourceModelCache

FileReferences = dict[str, Any]  # Ray's reference to a file's bytes, by file name


class DriverFiles:
    """Files in the driver's folder of source models, with Ray's references to those already sent.

    Args:
        folder: the folder of source models.
    """

    def __init__(self, folder: Path) -> None:
        self._models = SourceModelCache(folder)
        self._sent: dict[str, FileReferences] = {}
        self._up_to_date: set[str] = set()  # keys of source models without new files

    def references(self, source: CachedSource) -> FileReferences:
        """Return references to all files of a source model, for workers to fetch."""
        import ray

        sent = self._sent.setdefault(source.key, {})
        if source.key not in self._up_to_date:
            self._up_to_date.add(source.key)
            new = [path for path in source_files(source, self._models.folder) if path.name not in sent]
            sent |= {path.name: ray.put(path.read_bytes()) for path in new}
        return sent

    def save(self, source: CachedSource, new_files: Mapping[str, bytes]) -> None:
        """Write the files that a worker made for a source model; existing files are kept."""
        for name, content in new_files.items():
            _write(self._models.folder / Path(name).name, content)
        if new_files:
            self._up_to_date.discard(source.key)


def source_files(source: CachedSource, folder: Path) -> list[Path]:
    """Return the files of a model and its statistics in ``folder``, without training checkpoints."""
    return sorted(folder.glob(f"{SourceModelCache(folder).path(source).stem}*.safetensors"))


def fetch_files(references: FileReferences, folder: Path) -> None:
    """Write the sent files to ``folder``, except those that exist."""
    import ray

    for name, reference in references.items():
        if not (folder / name).exists():
            _write(folder / name, ray.get(reference))


def _write(path: Path, content: bytes) -> None:
    if not path.exists():
        with atomic_write(path) as draft:
            draft.write_bytes(content)


# --- folders of workers --------------------------------------------------------------------------


@contextmanager
def marker_file(folder: Path) -> Iterator[str]:
    """Yield the name of a marker file in ``folder`` kept during the block; machines that see it share the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / f".sweep-{uuid.uuid4().hex}"
    marker.touch()
    try:
        yield marker.name
    finally:
        marker.unlink(missing_ok=True)


def shares_disk(folder: Path, marker: str) -> bool:
    """Return True if ``folder`` on this machine is the driver's."""
    return (folder / marker).exists()


def scratch_folder(marker: str) -> Path:
    """Return the sweep's temporary folder of source models, for a machine that does not share the driver's disk."""
    folder = Path(tempfile.gettempdir()) / f"regtta{marker}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def remove_scratch_folder(marker: str) -> None:
    """Remove the folder of :func:`scratch_folder`."""
    shutil.rmtree(scratch_folder(marker), ignore_errors=True)


_ACTOR_TIMEOUT = 5.0  # seconds; progress reports must not delay the sweep


class ProgressActor:
    """Actor that buffers progress reports in a process of its own."""

    def __init__(self) -> None:
        self._reports: list[tuple[str, int, int]] = []

    def report(self, name: str, done: int, total: int) -> None:
        """Append the progress of a training."""
        self._reports.append((name, done, total))

    def drain(self) -> list[tuple[str, int, int]]:
        """Return the reports since the last call and clear the buffer."""
        reports, self._reports = self._reports, []
        return reports


class ProgressInbox:
    """Progress reports of all workers, collected from an actor on any machine of the cluster.

    Ray restarts the actor if it is lost. A request that it has not answered yet is kept, so that no report is lost
    while its process starts.

    Attributes:
        actor: the actor, to which workers report.
    """

    def __init__(self) -> None:
        import ray

        self.actor: Any = ray.remote(ProgressActor).options(num_cpus=0, max_restarts=-1).remote()
        self._request: Any = None

    def drain(self, timeout: float = _ACTOR_TIMEOUT) -> list[tuple[str, int, int]]:
        """Return the reports since the last call; none if the actor does not answer in time."""
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError

        request = self._request or self.actor.drain.remote()
        self._request = None
        try:
            reports: list[tuple[str, int, int]] = ray.get(request, timeout=timeout)
            return reports
        except GetTimeoutError:
            self._request = request
        except (RayActorError, ConnectionError):
            pass
        return []


class ProgressReporter:
    """Callback of a worker that sends its training progress to the actor."""

    def __init__(self, progress_actor: Any) -> None:
        self._progress_actor = progress_actor
        self._last: list[Any] = []

    def __call__(self, name: str, done: int, total: int) -> None:
        """Report the progress of a training without blocking."""
        self._last = [self._progress_actor.report.remote(name, done, total)]

    def flush(self) -> None:
        """Wait until the last report has arrived, up to a timeout."""
        import ray

        if self._last:
            ray.wait(self._last, timeout=_ACTOR_TIMEOUT)
            self._last = []


@dataclass(frozen=True)
class SweepConfig(Generic[S]):
    """Configuration that all tasks of a sweep share.

    Attributes:
        worker_config: the driver's worker configuration.
        marker: identifier of the sweep, and name of a marker file in the driver's folder of source models.
        threads: number of threads per worker.
        version: the driver's version of regtta.
    """

    worker_config: WorkerConfig[S]
    marker: str
    threads: int
    version: str = __version__


@dataclass(frozen=True)
class TaskOutput:
    """Output of a task.

    Attributes:
        result: result of a run; empty for other tasks.
        new_files: contents of source model files that the driver did not send, by file name.
        scratch_node: Ray's node ID if the machine keeps source models in a temporary folder; None if it shares the
            driver's disk.
    """

    result: RunResult
    new_files: dict[str, bytes]
    scratch_node: str | None


def execute_task(
    config: SweepConfig[S], progress_actor: Any, references: FileReferences, task: SweepTask[S]
) -> TaskOutput:
    """Execute a task on this machine."""
    with _naming_this_machine():
        state = _get_process_state(config, progress_actor)
        config.worker_config.check(task.specs)
        fetch_files(references, state.folder)
        result = task.execute(state.worker)
        state.reporter.flush()
        new_files = {
            path.name: path.read_bytes()
            for path in source_files(task.source, state.folder)
            if path.name not in references
        }
        return TaskOutput(result, new_files, state.scratch_node)


def check_machine(arguments: tuple[WorkerConfig[S], Sequence[S]], version: str) -> None:
    """Raise if this machine has another version of regtta or lacks data or weights that the runs need."""
    with _naming_this_machine():
        _check_version(version)
        config, specs = arguments
        config.check(specs)


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
class _ProcessState:
    marker: str
    folder: Path
    scratch_node: str | None
    reporter: ProgressReporter
    worker: Worker[Any]


_process_state: _ProcessState | None = None


def _get_process_state(config: SweepConfig[Any], progress_actor: Any) -> _ProcessState:
    global _process_state  # noqa: PLW0603 - a Ray process keeps its state in globals
    if _process_state is None or _process_state.marker != config.marker:
        _process_state = None  # free the memory first: two workers may not fit
        _process_state = _new_process_state(config, progress_actor)
    return _process_state


def _new_process_state(config: SweepConfig[Any], progress_actor: Any) -> _ProcessState:
    import ray

    _check_version(config.version)
    torch.set_num_threads(config.threads)
    shared = shares_disk(config.worker_config.models, config.marker)
    folder = config.worker_config.models if shared else scratch_folder(config.marker)
    scratch_node = None if shared else ray.get_runtime_context().get_node_id()
    reporter = ProgressReporter(progress_actor)
    return _ProcessState(
        config.marker,
        folder,
        scratch_node,
        reporter,
        config.worker_config.with_models_folder(folder).make_worker(reporter),
    )
