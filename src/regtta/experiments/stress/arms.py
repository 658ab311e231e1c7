"""Methods and guard configurations of the benchmark, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from regtta.experiments.reproduce.arms import arm_of, fits
from regtta.experiments.reproduce.settings import Setting
from regtta.guards import DEFAULT, SAFE, Gate, Guard
from regtta.methods import Method, method

SOURCE = "source"
WINDOW = "ssa_window"
ADAPTING = (
    *("bn_adapt", "feature_alignment", "feature_restoration", "prototype", "variance_minimization", "rsd"),
    *("ssa", WINDOW),
)
_OPTIONS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {WINDOW: MappingProxyType({"window": 64, "batch_norm": "blended"})}
)

PLAIN, SAFELY, GATED = "plain", "safe", "gate"
COMPARED = (PLAIN, SAFELY)
GUARDS: Mapping[str, tuple[Guard, ...]] = MappingProxyType({PLAIN: DEFAULT, SAFELY: SAFE, GATED: (*DEFAULT, Gate())})


def method_by_default(name: str) -> Method:
    """Return the method of an arm with the library's defaults, which are the paper's.

    Example:
        >>> method_by_default("ssa_window").window
        64
    """
    return method(_named(name), **_OPTIONS.get(name, {}))


def method_in(setting: Setting, name: str) -> Method | None:
    """Return the method of an arm with the paper's options in ``setting``; None if it is not supported there.

    Example:
        >>> from regtta.experiments.reproduce.settings import SETTINGS
        >>> method_in(SETTINGS["california"], "ssa_window").k
        10
        >>> method_in(SETTINGS["california"], "variance_minimization") is None
        True
    """
    if not fits(setting, _named(name), "regression"):
        return None
    return arm_of(setting, _named(name), _OPTIONS.get(name)).method


def _named(name: str) -> str:
    return "ssa" if name == WINDOW else name
