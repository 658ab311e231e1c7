"""Method configurations ("arms") of the tables: options per setting, and the source models that each runs on.

Hyperparameters are the paper's, or documented assumptions where the paper does not state them. As in the paper's
tables, ``k`` is not clipped at the rank of the source covariance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from regtta.methods import METHODS, Method, NoAdaptation, Sum, create_method
from regtta.options import check_choice, check_positive_int, field_types
from regtta.options import replace as with_options
from regtta_bench.paper.protocol import Task
from regtta_bench.paper.settings import Setting

BATCH_SIZE = 64
OWN_SOURCE = ("rotation", "dann")  # objectives whose source model is trained for a single method

# Three configurations for California: the paper's text, its released configuration, and a lower learning rate.
READINGS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "text": MappingProxyType({}),
        "released": MappingProxyType({"trainable": "extractor", "lr": 1e-4}),
        "affine 1e-4": MappingProxyType({"lr": 1e-4}),
    }
)


@dataclass(frozen=True)
class Arm:
    """A method configuration with the training objective of its source models and its batch size.

    Attributes:
        method: the method with all its options.
        objective: training objective of the source models.
        batch_size: samples per adaptation step.
    """

    method: Method
    objective: str = "regression"
    batch_size: int = BATCH_SIZE

    @property
    def paired(self) -> bool:
        """True if the method shares its source models with the other methods, so that scores can be paired."""
        return self.objective not in OWN_SOURCE


def arm_of(
    setting: Setting, name: str, options: Mapping[str, object] | None = None, *, task: Task = "regression"
) -> Arm:
    """Return the arm for the method ``name`` in ``setting``: the paper's options, overridden by ``options``.

    Args:
        setting: the experimental setting.
        name: name of a method or of a sum of methods, or ``"dann"``.
        options: overrides of the method's options and of ``batch_size``.
        task: the task of the source models.

    Example:
        >>> from regtta_bench.paper.settings import SETTINGS
        >>> arm_of(SETTINGS["california"], "ssa").method.k
        10
    """
    chosen = dict(options or {})
    size = _batch_size(chosen.pop("batch_size", BATCH_SIZE))
    if name == "dann":
        return Arm(NoAdaptation(), "dann", size)
    for part in parts_of(name):
        check_choice("the method", part, METHODS.keys())
    known = {option for part in parts_of(name) for option in field_types(METHODS[part])}
    defaults = {"k": setting.k, "clip": False} | ({} if name == "bn_adapt" else dict(setting.options))
    if task == "classification":
        defaults |= {"weighting": False, "task": "classification"}
    if name == "rsd":
        del defaults["k"]  # RSD uses as many bases as the batch has samples
    made = create_method(name, **{key: value for key, value in defaults.items() if key in known} | chosen)
    objective = "rotation" if name == "ttt" else task
    return Arm(made, objective, size)


def _batch_size(value: object) -> int:
    check_positive_int("the batch size", value)
    return value if isinstance(value, int) else BATCH_SIZE


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names of the methods in a sum, without their weights.

    Example:
        >>> parts_of("tent+0.5*ssa")
        ('tent', 'ssa')
    """
    return tuple(part.rpartition("*")[2].strip() for part in name.split("+"))


def fits(setting: Setting, name: str, task: Task) -> bool:
    """Return True if all methods in ``name`` support the setting and task; some need images, classes or BatchNorm."""
    parts = set(parts_of(name))
    return (
        (setting.images or not parts & {"ttt", "variance_minimization"})
        and (task == "classification" or "tent" not in parts)
        and (task == "regression" or not parts & {"ttt", "prototype"})
        and (setting.model != "vit_b16" or "bn_adapt" not in parts)
    )


# Factory of a user-defined table row: returns the arm for a setting and a task, or None if it is not supported.
ArmMaker = Callable[[Setting, Task], Arm | None]


def seeded_arm(arm: Arm, seed: int) -> Arm:
    """Return ``arm`` with its method's random seed set to ``seed``."""
    return replace(arm, method=_seeded(arm.method, seed))


def _seeded(method: Method, seed: int) -> Method:
    if isinstance(method, Sum):
        return replace(method, terms=tuple(_seeded(term, seed) for term in method.terms))  # type: ignore[misc]
    return with_options(method, {"seed": seed}) if "seed" in field_types(type(method)) else method


def follows_order(arm: Arm) -> bool:
    """Return True if the result depends on the order of the stream, which is so for every method but ``source``."""
    return arm.method.name != "source"
