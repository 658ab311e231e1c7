"""Method configurations of the tables: options per setting, and the source models that each runs on.

Hyperparameters are the paper's, or documented assumptions where the paper does not state them. SSA has the settings of
``SSA.from_paper()``; as in the paper's tables, ``k`` is not clipped at the rank of the source covariance in any method.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from regtta.guards import DEFAULT, SAFE, Guard
from regtta.methods import METHODS, SSA, Method, NoAdaptation, Sum, create_method
from regtta.options import check_choice, check_positive_int, field_types
from regtta.options import replace as with_options
from regtta_bench.paper.protocol import Task
from regtta_bench.paper.settings import Setting

BATCH_SIZE = 64
GuardPreset = Literal["default", "safe"]
GUARD_PRESETS: Mapping[GuardPreset, tuple[Guard, ...]] = MappingProxyType({"default": DEFAULT, "safe": SAFE})
OWN_SOURCE_OBJECTIVES = ("rotation", "dann")  # objectives whose source model is trained for a single method

# Three configurations for California: the paper's text, its released configuration, and a lower learning rate.
READINGS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "text": MappingProxyType({}),
        "released": MappingProxyType({"trainable": "extractor", "lr": 1e-4}),
        "affine 1e-4": MappingProxyType({"lr": 1e-4}),
    }
)


@dataclass(frozen=True)
class MethodConfig:
    """A method configuration with the training objective of its source models, its batch size and its guards.

    Attributes:
        method: the method with all its options.
        objective: training objective of the source models.
        batch_size: samples per adaptation step.
        guards: name of the guards, one of ``GUARD_PRESETS``.
    """

    method: Method
    objective: str = "regression"
    batch_size: int = BATCH_SIZE
    guards: GuardPreset = "default"

    def __post_init__(self) -> None:
        """Validate the fields."""
        check_choice("the guards", self.guards, GUARD_PRESETS)

    @property
    def paired(self) -> bool:
        """True if the method shares its source models with the other methods, so that scores can be paired."""
        return self.objective not in OWN_SOURCE_OBJECTIVES


def make_method_config(
    setting: Setting, name: str, options: Mapping[str, object] | None = None, *, task: Task = "regression"
) -> MethodConfig:
    """Return the configuration of the method ``name`` in ``setting``: the paper's options, overridden by ``options``.

    Args:
        setting: the experimental setting.
        name: name of a method or of a sum of methods, or ``"dann"``.
        options: overrides of the method's options and of ``batch_size``.
        task: the task of the source models.

    Example:
        >>> from regtta_bench.paper.settings import SETTINGS
        >>> make_method_config(SETTINGS["california"], "ssa").method.k
        10
    """
    chosen = dict(options or {})
    size = _batch_size(chosen.pop("batch_size", BATCH_SIZE))
    if name == "dann":
        return MethodConfig(NoAdaptation(), "dann", size)
    for part in method_names(name):
        check_choice("the method", part, METHODS.keys())
    known = {option for part in method_names(name) for option in field_types(METHODS[part])}
    defaults: dict[str, object] = {"k": setting.k, "clip": False}
    if "ssa" in method_names(name):
        paper = SSA.from_paper()
        defaults |= {option: getattr(paper, option) for option in ("lr", "batch_norm", "bn_momentum")}
    if name != "bn_adapt":
        defaults |= setting.options
    if task == "classification":
        defaults |= {"weighting": False, "task": "classification"}
    if name == "rsd":
        del defaults["k"]  # RSD uses as many bases as the batch has samples
    configured = create_method(name, **{key: value for key, value in defaults.items() if key in known} | chosen)
    objective = "rotation" if name == "ttt" else task
    return MethodConfig(configured, objective, size)


def _batch_size(value: object) -> int:
    check_positive_int("the batch size", value)
    return value if isinstance(value, int) else BATCH_SIZE


def method_names(name: str) -> tuple[str, ...]:
    """Return the names of the methods in a sum, without their weights.

    Example:
        >>> method_names("tent+0.5*ssa")
        ('tent', 'ssa')
    """
    return tuple(part.rpartition("*")[2].strip() for part in name.split("+"))


def is_supported(setting: Setting, name: str, task: Task) -> bool:
    """Return True if all methods in ``name`` support the setting and task; some need images, classes or BatchNorm."""
    parts = set(method_names(name))
    return (
        (setting.has_images or not parts & {"ttt", "variance_minimization", "consistency"})
        and (task == "classification" or "tent" not in parts)
        and (task == "regression" or not parts & {"ttt", "prototype"})
        and (setting.model != "vit_b16" or "bn_adapt" not in parts)
    )


# Factory of a user-defined table row: returns its configuration for a setting and a task, or None if not supported.
MethodConfigFactory = Callable[[Setting, Task], MethodConfig | None]


def with_seed(method_config: MethodConfig, seed: int) -> MethodConfig:
    """Return ``method_config`` with its method's random seed set to ``seed``."""
    return replace(method_config, method=_seeded(method_config.method, seed))


def _seeded(method: Method, seed: int) -> Method:
    if isinstance(method, Sum):
        return replace(method, terms=tuple(_seeded(term, seed) for term in method.terms))  # type: ignore[misc]
    return with_options(method, {"seed": seed}) if "seed" in field_types(type(method)) else method


def depends_on_order(method_config: MethodConfig) -> bool:
    """Return True if the result depends on the order of the stream, which is so for every method but ``source``."""
    return method_config.method.name != "source"
