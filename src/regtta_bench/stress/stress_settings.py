"""Settings of the stress benchmark: methods, guards, and which testbeds they run on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

from regtta.guards import DEFAULT, SAFE, Gate, Guard
from regtta.methods import Method, create_method
from regtta_bench.demo.demo_data import DEGRADATIONS
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.paper import SETTINGS as PAPER_SETTINGS
from regtta_bench.paper import Setting, is_supported, make_method_config
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.sweep.source_models import SourceSpec
from regtta_bench.sweep.store import compute_key
from regtta_bench.training import SVHN, Recipe

SOURCE_METHOD = "source"
SSA_WINDOW = "ssa_window"
ADAPTATION_METHODS = (
    *("bn_adapt", "feature_alignment", "feature_restoration", "prototype", "variance_minimization", "rsd"),
    *("ssa", SSA_WINDOW),
)
# SSA of the paper on the demo, but for the directions beyond the rank, which are not aligned.
_PAPER_SSA: Mapping[str, object] = MappingProxyType({"clip": True, "batch_norm": "batch", "bn_momentum": None})
_WINDOW: Mapping[str, object] = MappingProxyType({"window": 64, "batch_norm": "blended"})

PLAIN_GUARDS, SAFE_GUARDS, GATE_GUARDS = "plain", "safe", "gate"
COMPARED_GUARDS = (PLAIN_GUARDS, SAFE_GUARDS)
GUARDS: Mapping[str, tuple[Guard, ...]] = MappingProxyType(
    {PLAIN_GUARDS: DEFAULT, SAFE_GUARDS: SAFE, GATE_GUARDS: (*DEFAULT, Gate())}
)


def default_method(name: str) -> Method:
    """Return the method called ``name`` with the library's defaults, which are the paper's.

    Example:
        >>> default_method("ssa_window").window
        64
    """
    options = dict(_PAPER_SSA) if _base_name(name) == "ssa" else {}
    return create_method(_base_name(name), **{**options, **_options(name)})


def paper_method(setting: Setting, name: str) -> Method | None:
    """Return the method called ``name`` with the paper's options in ``setting``; None if it is not supported there.

    Example:
        >>> from regtta_bench.paper.settings import SETTINGS
        >>> paper_method(SETTINGS["california"], "ssa_window").k
        10
        >>> paper_method(SETTINGS["california"], "variance_minimization") is None
        True
    """
    if not is_supported(setting, _base_name(name), "regression"):
        return None
    return make_method_config(setting, _base_name(name), _options(name)).method


def _options(name: str) -> Mapping[str, object]:
    return _WINDOW if name == SSA_WINDOW else {}


def _base_name(name: str) -> str:
    return "ssa" if name == SSA_WINDOW else name


@dataclass(frozen=True)
class DigitsSource:
    """Specification of a source model of the demo.

    Attributes:
        seed: seed of the split, the weights and the order of samples.
        source_digits: number of training samples.
        target_digits: number of target samples; None for all others.
        training: training hyperparameters.
    """

    seed: int
    source_digits: int = 900
    target_digits: int | None = None
    training: DigitTraining = field(default_factory=DigitTraining)

    def to_dict(self) -> dict[str, object]:
        """Return the specification as a JSON-serialisable dict."""
        return asdict(self)

    @property
    def key(self) -> str:
        """Hash of the specification."""
        return compute_key(self.to_dict())

    @property
    def name(self) -> str:
        """Short human-readable name."""
        return f"demo-digits-{self.seed}"

    @property
    def model(self) -> str:
        """Name of the architecture."""
        return "digits"


StressSource = DigitsSource | SourceSpec


@dataclass(frozen=True)
class StressSetting(ABC):
    """Setting of the benchmark. Abstract.

    Attributes:
        name: name on the command line.
        title: human-readable title.
        parts: names of the shifts.
        length: most samples of a stream; 0 for all available ones.
    """

    name: str
    title: str
    parts: tuple[str, ...]
    length: int = 0

    @property
    @abstractmethod
    def data(self) -> str | None:
        """Name of the required data set; None if it ships with a dependency."""

    @abstractmethod
    def source(self, seed: int) -> StressSource:
        """Return the specification of the source model with a seed."""

    @abstractmethod
    def method(self, name: str) -> Method | None:
        """Return the method called ``name``; None if it is not supported."""


@dataclass(frozen=True)
class DigitsSetting(StressSetting):
    """Setting of the demo: UCI digits and their degradations."""

    @property
    def data(self) -> None:
        """None, as the digits ship with scikit-learn."""
        return

    def source(self, seed: int) -> DigitsSource:
        """Return the specification of the demo's source model with a seed."""
        return DigitsSource(seed)

    def method(self, name: str) -> Method:
        """Return the method called ``name`` with the library's defaults, as in the demo."""
        return default_method(name)


@dataclass(frozen=True)
class PaperSetting(StressSetting):
    """A setting of the paper.

    Attributes:
        paper: the setting of ``regtta reproduce``.
    """

    paper: Setting = PAPER_SETTINGS["california"]

    @property
    def data(self) -> str:
        """Name of the setting's data set."""
        return self.paper.data

    def source(self, seed: int) -> SourceSpec:
        """Return the specification of the source model that the paper's tables use."""
        (part,) = self.paper.parts.values()
        return SweepPlan().source_spec(self.paper, part, "regression", seed)

    def method(self, name: str) -> Method | None:
        """Return the method called ``name`` with the paper's hyperparameters; None if it is not supported."""
        return paper_method(self.paper, name)


def _of_paper(name: str, length: int = 0, recipe: Recipe | None = None) -> PaperSetting:
    paper = PAPER_SETTINGS[name] if recipe is None else replace(PAPER_SETTINGS[name], recipe=recipe)
    return PaperSetting(name, paper.title, tuple(paper.parts), length, paper)


STRESS_SETTINGS: Mapping[str, StressSetting] = MappingProxyType(
    {
        "demo": DigitsSetting("demo", "the demo's digits", tuple(DEGRADATIONS)),
        "california": _of_paper("california"),
        # Source models of 100 epochs, a seventh of the steps of `regtta reproduce`, as in the committed results.
        "svhn-subset": _of_paper("svhn-subset", length=2000, recipe=SVHN),
    }
)
