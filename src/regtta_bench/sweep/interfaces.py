"""Protocols of a sweep: run specifications, workers, worker configurations, progress listeners and executors."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeVar

from regtta_bench.sweep.source_models import CachedSource

RunResult = dict[str, object]  # JSON-serialisable result of a run
ProgressCallback = Callable[[str, int, int], None]  # training progress: name of the model, epochs done, epochs in total


class Spec(Protocol):
    """Specification of one run: hashable, compared by its fields, and picklable."""

    @property
    def source(self) -> CachedSource:
        """Specification of the source model."""

    @property
    def target(self) -> str:
        """Name of the target domain; runs on one target share its data."""

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-serialisable key of the run, with that of its source model under ``"source"``."""


S = TypeVar("S", bound=Spec)
S_contra = TypeVar("S_contra", bound=Spec, contravariant=True)
CompletedRuns = Generator[tuple[S, RunResult], None, None]  # completed runs with their results


class Worker(Protocol[S_contra]):
    """Executor of runs within one process."""

    def run(self, spec: S_contra) -> RunResult:
        """Execute a run and return its result, which includes the ``"source_fingerprint"`` of the model."""

    def prepare(self, specs: Sequence[S_contra]) -> None:
        """Prepare what runs on one source model share: train the model and collect its statistics."""


class WorkerConfig(Protocol[S_contra]):
    """Configuration that workers are created from; picklable, so that other processes and machines can receive it."""

    @property
    def device(self) -> str:
        """Device that runs execute on."""

    @property
    def models(self) -> Path:
        """Folder of source models."""

    def with_models_folder(self, models: Path) -> Self:
        """Return a copy with another folder of source models."""

    def check(self, specs: Sequence[S_contra]) -> None:
        """Raise if data or weights that the runs need are missing on this machine; download them if that is allowed."""

    def make_worker(self, progress: ProgressCallback) -> Worker[S_contra]:
        """Create a worker that reports training progress to ``progress``."""


class ProgressListener(Protocol):
    """Callbacks on the progress of a sweep."""

    def on_start(self, runs: int, found: int) -> None:
        """Called at the start with the number of runs to execute and of those found in the store."""

    def on_training(self, name: str, done: int, total: int) -> None:
        """Called when ``done`` of ``total`` epochs of a source model are complete."""

    def on_run(self, spec: Spec, result: RunResult) -> None:
        """Called after a run has been executed and stored."""


class Executor(Protocol):
    """Executor of a sweep: in this process, in several processes, or on a cluster."""

    def default_device(self) -> str:
        """Return the default device: ``"cuda"`` if a GPU is available, else ``"cpu"``."""

    def check(self, specs: Sequence[S], config: WorkerConfig[S]) -> None:
        """Raise if data or weights that the runs need are missing on a machine that may execute them."""

    def execute(self, specs: Sequence[S], config: WorkerConfig[S], listener: ProgressListener) -> CompletedRuns[S]:
        """Yield completed runs in any order; closing the generator early stops all work."""
