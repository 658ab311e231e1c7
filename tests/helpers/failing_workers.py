"""Runs that cost nothing, and workers that die, fail or use a separate disk on request.

Requests are files in one folder, since workers are separate processes.
"""

import hashlib
import os
import signal
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from regtta.errors import BatchError, MissingFileError
from regtta_bench.sweep.source_models import SourceModelCache


@dataclass(frozen=True)
class FakeSource:
    name: str
    model: str = "mlp"

    @property
    def key(self) -> str:
        return hashlib.sha256(self.to_dict().encode()).hexdigest()[:16]

    def to_dict(self) -> str:
        return f"{self.name} {self.model}"


@dataclass(frozen=True)
class FakeSpec:
    source: FakeSource
    number: int
    target: str = "target"

    @property
    def name(self) -> str:
        return f"{self.source.name}-{self.number}"

    def to_dict(self) -> dict[str, object]:
        return {"source": {"name": self.source.name, "model": self.source.model}, "number": self.number}


def make_fake_specs(sources: int, runs: int) -> list[FakeSpec]:
    """Return ``runs`` specifications on each of ``sources`` source models."""
    return [FakeSpec(FakeSource(f"source{i}"), number) for i in range(sources) for number in range(runs)]


@dataclass(frozen=True)
class FailingWorkerConfig:
    """Configuration of workers that behave as the files in ``flags`` request.

    ``NAME.dies`` kills every worker that starts NAME, ``NAME.dies-once`` the first one; ``NAME.fails``,
    ``NAME.lacks-a-file`` and ``NAME.has-a-bug`` raise an error, ``NAME.sleeps`` blocks. NAME is the name of a run or of
    a source model. Workers record there each run and model that they start.
    """

    flags: Path
    models: Path
    device: str = "cpu"

    def with_models_folder(self, models: Path) -> "FailingWorkerConfig":
        return replace(self, models=models)

    def check(self, specs) -> None:
        if (self.flags / "data-is-missing").exists():
            raise MissingFileError("There is no data.")

    def make_worker(self, progress):
        return FailingWorker(self, progress)

    def set_flag(self, text: str) -> None:
        (self.flags / text).touch()

    def count_started(self, name: str) -> int:
        """Return how many times a run or model was started."""
        return len(list(self.flags.glob(f"{name}.started.*")))


class SeparateDiskConfig(FailingWorkerConfig):
    """Configuration for a machine with a separate disk: unpickling it changes the folder of source models."""

    def __reduce__(self):
        return (SeparateDiskConfig, (self.flags, self.models.parent / "not-the-drivers", self.device))


class FailingWorker:
    def __init__(self, worker_config: FailingWorkerConfig, progress) -> None:
        self.worker_config, self.progress = worker_config, progress
        self.models = SourceModelCache(worker_config.models)

    def prepare(self, specs) -> None:
        source = specs[0].source
        self._start(source.name)
        path = self.models.path(source)
        if not path.exists():
            self.progress(source.name, 1, 2)
            path.write_text(uuid.uuid4().hex)  # no two trainings are alike
            self.progress(source.name, 2, 2)

    def run(self, spec) -> dict[str, object]:
        self._start(spec.name)
        return {"number": spec.number, "source_fingerprint": self.models.path(spec.source).read_text()}

    def _start(self, name: str) -> None:
        self.worker_config.set_flag(f"{name}.started.{uuid.uuid4().hex}")
        requests = {path.name.removeprefix(f"{name}.") for path in self.worker_config.flags.glob(f"{name}.*")}
        if "dies-once" in requests:
            (self.worker_config.flags / f"{name}.dies-once").unlink()
        if requests & {"dies", "dies-once"}:
            os.kill(os.getpid(), signal.SIGKILL)
        if "fails" in requests:
            raise BatchError(f"{name} cannot be read.")
        if "lacks-a-file" in requests:
            raise MissingFileError(f"{name} has no file.")
        if "has-a-bug" in requests:
            raise ZeroDivisionError(name)
        if "sleeps" in requests:
            time.sleep(600)
