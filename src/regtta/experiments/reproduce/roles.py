"""Who takes part in a sweep: runs, the workers who make them, what those work with, and who is told."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeVar

from regtta.experiments.sources import KeptSource

Result = dict[str, object]  # what came of a run, as JSON has it
Told = Callable[[str, int, int], None]  # told of a training: the name of the model, epochs done, and in all


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
Made = Generator[tuple[S, Result], None, None]  # runs as they are made


class Worker(Protocol[S_contra]):
    """Makes runs in one process."""

    def run(self, spec: S_contra) -> Result:
        """What came of a run, with the ``"source_fingerprint"`` of the model it was made on."""

    def ready(self, specs: Sequence[S_contra]) -> None:
        """Make what runs on one source model share, so that they find it: the model, and its statistics."""


class Kit(Protocol[S_contra]):
    """What a worker is made from; can be sent to another process, and to another machine."""

    @property
    def device(self) -> str:
        """Where runs are made."""

    @property
    def models(self) -> Path:
        """The folder of source models."""

    def at(self, models: Path) -> Self:
        """The same kit with another folder of source models."""

    def check(self, specs: Sequence[S_contra]) -> None:
        """Raise if what the runs need is not on the machine that this is called on, or get it where that is allowed."""

    def worker(self, told: Told) -> Worker[S_contra]:
        """One that tells of trainings."""


class Listener(Protocol):
    """Who is told how a sweep goes."""

    def begun(self, runs: int, found: int) -> None:
        """There are ``runs`` to make, beside ``found`` that were made before."""

    def training(self, name: str, done: int, total: int) -> None:
        """A source model has ``done`` of its epochs behind it."""

    def ran(self, spec: Spec, result: Result) -> None:
        """A run is made and kept."""


class Crew(Protocol):
    """Those who make the runs of a sweep, and where: in this process, in several, on many machines."""

    def best_device(self) -> str:
        """Where to run if the user does not say: a GPU if there is one."""

    def check(self, specs: Sequence[S], tools: Kit[S]) -> None:
        """Raise if what the runs need is missing where they are to be made."""

    def make(self, specs: Sequence[S], tools: Kit[S], listener: Listener) -> Made[S]:
        """The runs as they are made, in any order; who closes this early leaves nothing running."""
