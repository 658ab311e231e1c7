"""What the benchmark runs on: each setting with its shifts, its source models and its methods."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from regtta.experiments.demo.degradations import DEGRADATIONS
from regtta.experiments.demo.training import Training
from regtta.experiments.reproduce.settings import SETTINGS as OF_THE_PAPER
from regtta.experiments.reproduce.settings import Setting
from regtta.experiments.reproduce.specs import Plan
from regtta.experiments.sources import SourceSpec
from regtta.experiments.store import key_of
from regtta.experiments.stress.arms import method_by_default, method_in
from regtta.methods import Method


@dataclass(frozen=True)
class DigitsSource:
    """Everything that a source model of the demo comes from.

    Attributes:
        seed: of its digits, its weights and its order of samples.
        source_digits: how many it is trained on.
        target_digits: how many there are to meet; None for all others.
        training: how it is trained.
    """

    seed: int
    source_digits: int = 900
    target_digits: int | None = None
    training: Training = field(default_factory=Training)

    def plain(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)

    @property
    def key(self) -> str:
        """A mark of it all."""
        return key_of(self.plain())

    @property
    def name(self) -> str:
        """Short, for people."""
        return f"demo-digits-{self.seed}"

    @property
    def model(self) -> str:
        """Name of the architecture."""
        return "digits"


StressSource = DigitsSource | SourceSpec


@dataclass(frozen=True)
class StressSetting(ABC):
    """One setting. Abstract.

    Attributes:
        name: what users type.
        title: for people.
        parts: names of its shifts.
        length: samples of a stream at most; 0 for as many as there are.
    """

    name: str
    title: str
    parts: tuple[str, ...]
    length: int = 0

    @property
    @abstractmethod
    def data(self) -> str | None:
        """Name of the data set that must be there; None where it ships."""

    @abstractmethod
    def source(self, seed: int) -> StressSource:
        """The source model of a seed."""

    @abstractmethod
    def method(self, name: str) -> Method | None:
        """The method of an arm; None where it cannot run."""


@dataclass(frozen=True)
class DigitsSetting(StressSetting):
    """The demo's digits and degradations."""

    @property
    def data(self) -> None:
        """Ships with scikit-learn."""
        return

    def source(self, seed: int) -> DigitsSource:
        """The demo's source model of a seed."""
        return DigitsSource(seed)

    def method(self, name: str) -> Method:
        """As the demo has it: with the library's defaults."""
        return method_by_default(name)


@dataclass(frozen=True)
class PaperSetting(StressSetting):
    """A setting of the paper.

    Attributes:
        paper: as ``regtta reproduce`` has it.
    """

    paper: Setting = OF_THE_PAPER["california"]

    @property
    def data(self) -> str:
        """The setting's own."""
        return self.paper.data

    def source(self, seed: int) -> SourceSpec:
        """The one that the paper's tables are made with."""
        (part,) = self.paper.parts.values()
        return Plan().source(self.paper, part, "regression", seed)

    def method(self, name: str) -> Method | None:
        """With the paper's hyperparameters there."""
        return method_in(self.paper, name)


def _of_paper(name: str, length: int = 0) -> PaperSetting:
    paper = OF_THE_PAPER[name]
    return PaperSetting(name, paper.title, tuple(paper.parts), length, paper)


SETTINGS: Mapping[str, StressSetting] = MappingProxyType(
    {
        "demo": DigitsSetting("demo", "the demo's digits", tuple(DEGRADATIONS)),
        "california": _of_paper("california"),
        "svhn-subset": _of_paper("svhn-subset", length=2000),
    }
)
