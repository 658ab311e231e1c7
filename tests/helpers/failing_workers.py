"""Runs that cost nothing, made by workers who can be told to die, to fail or to sit elsewhere.

What is told to whom lies in one folder, as files, since workers are processes of their own.
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
class MadeUpSource:
    name: str
    model: str = "mlp"

    @property
    def key(self) -> str:
        return hashlib.sha256(self.to_dict().encode()).hexdigest()[:16]

    def to_dict(self) -> str:
        return f"{self.name} {self.model}"


@dataclass(frozen=True)
class MadeUpSpec:
    source: MadeUpSource
    number: int
    target: str = "target"

    @property
    def name(self) -> str:
        return f"{self.source.name}-{self.number}"

    def to_dict(self) -> dict[str, object]:
        return {"source": {"name": self.source.name, "model": self.source.model}, "number": self.number}


def made_up(sources: int, runs: int) -> list[MadeUpSpec]:
    return [MadeUpSpec(MadeUpSource(f"source{i}"), number) for i in range(sources) for number in range(runs)]


@dataclass(frozen=True)
class Mortal:
    """A kit whose workers do as the files in ``notes`` say.

    ``NAME.dies`` kills the worker that does NAME, and ``NAME.dies-once`` the first one; ``NAME.fails``,
    ``NAME.lacks-a-file``, ``NAME.has-a-bug`` and ``NAME.sleeps`` are what they say. NAME is of a run or of a source
    model. What was done is written down there too.
    """

    notes: Path
    models: Path
    device: str = "cpu"

    def with_models_folder(self, models: Path) -> "Mortal":
        return replace(self, models=models)

    def check(self, specs) -> None:
        if (self.notes / "data-is-missing").exists():
            raise MissingFileError("There is no data.")

    def make_worker(self, told):
        return MortalWorker(self, told)

    def note(self, text: str) -> None:
        (self.notes / text).touch()

    def done(self, name: str) -> int:
        """How often something was begun."""
        return len(list(self.notes.glob(f"{name}.begun.*")))


class Elsewhere(Mortal):
    """The same, for a machine with another disk: when it arrives there, the folder of source models is another."""

    def __reduce__(self):
        return (Elsewhere, (self.notes, self.models.parent / "not-the-drivers", self.device))


class MortalWorker:
    def __init__(self, kit: Mortal, told) -> None:
        self.kit, self.told = kit, told
        self.models = SourceModelCache(kit.models)

    def prepare(self, specs) -> None:
        source = specs[0].source
        self._begin(source.name)
        path = self.models.path(source)
        if not path.exists():
            self.told(source.name, 1, 2)
            path.write_text(uuid.uuid4().hex)  # no two trainings are alike
            self.told(source.name, 2, 2)

    def run(self, spec) -> dict[str, object]:
        self._begin(spec.name)
        return {"number": spec.number, "source_fingerprint": self.models.path(spec.source).read_text()}

    def _begin(self, name: str) -> None:
        self.kit.note(f"{name}.begun.{uuid.uuid4().hex}")
        told = {path.name.removeprefix(f"{name}.") for path in self.kit.notes.glob(f"{name}.*")}
        if "dies-once" in told:
            (self.kit.notes / f"{name}.dies-once").unlink()
        if told & {"dies", "dies-once"}:
            os.kill(os.getpid(), signal.SIGKILL)
        if "fails" in told:
            raise BatchError(f"{name} cannot be read.")
        if "lacks-a-file" in told:
            raise MissingFileError(f"{name} has no file.")
        if "has-a-bug" in told:
            raise ZeroDivisionError(name)
        if "sleeps" in told:
            time.sleep(600)
