"""The methods of the tables: which options each has where, and on whose source model it runs.

Hyperparameters are the paper's, or our readings where it is silent. The tables of the paper run with no clipping at the
rank of the source, and so do their rows here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from regtta.experiments.reproduce.settings import Setting
from regtta.experiments.scoring import Task
from regtta.experiments.sources import OWN_SOURCE
from regtta.methods import METHODS, Method, Source, Sum, method
from regtta.options import check_choice, check_count, field_types
from regtta.options import replace as with_options

BATCH_SIZE = 64

# California is adapted in three ways: as the paper's text has it, as its released configuration does, and gently.
READINGS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "text": MappingProxyType({}),
        "released": MappingProxyType({"trainable": "extractor", "lr": 1e-4}),
        "affine 1e-4": MappingProxyType({"lr": 1e-4}),
    }
)


@dataclass(frozen=True)
class Arm:
    """A method, the source models it runs on and the size of its batches.

    Attributes:
        method: with all its options.
        objective: what its source models were trained for.
        batch_size: samples a step.
    """

    method: Method
    objective: str = "regression"
    batch_size: int = BATCH_SIZE

    @property
    def paired(self) -> bool:
        """Whether it runs on the source models that the other methods run on."""
        return self.objective not in OWN_SOURCE


def arm_of(
    setting: Setting, name: str, options: Mapping[str, object] | None = None, *, task: Task = "regression"
) -> Arm:
    """The method called ``name`` in ``setting``, as the paper ran it, but for ``options``.

    Args:
        setting: where.
        name: of a method or a sum of methods, or ``"dann"``.
        options: of the method, and ``batch_size``.
        task: what the source models predict.

    Example:
        >>> from regtta.experiments.reproduce.settings import SETTINGS
        >>> arm_of(SETTINGS["california"], "ssa").method.k
        10
    """
    chosen = dict(options or {})
    size = _batch_size(chosen.pop("batch_size", BATCH_SIZE))
    if name == "dann":
        return Arm(Source(), "dann", size)
    for part in parts_of(name):
        check_choice("the method", part, METHODS.keys())
    known = {option for part in parts_of(name) for option in field_types(METHODS[part])}
    usual = {"k": setting.k, "clip": False} | ({} if name == "bn_adapt" else dict(setting.options))
    if task == "classification":
        usual |= {"weighting": False, "task": "classification"}
    if name == "rsd":
        del usual["k"]  # as many bases as the batch has samples
    made = method(name, **{key: value for key, value in usual.items() if key in known} | chosen)
    objective = "rotation" if name == "ttt" else task
    return Arm(made, objective, size)


def _batch_size(value: object) -> int:
    check_count("the batch size", value)
    return value if isinstance(value, int) else BATCH_SIZE


def parts_of(name: str) -> tuple[str, ...]:
    """The methods that a sum names, without their weights.

    Example:
        >>> parts_of("tent+0.5*ssa")
        ('tent', 'ssa')
    """
    return tuple(part.rpartition("*")[2].strip() for part in name.split("+"))


def fits(setting: Setting, name: str, task: Task) -> bool:
    """Whether all methods that ``name`` sums can run there: some need images, classes or BatchNorm."""
    parts = set(parts_of(name))
    return (
        (setting.images or not parts & {"ttt", "variance_minimization"})
        and (task == "classification" or "tent" not in parts)
        and (task == "regression" or not parts & {"ttt", "prototype"})
        and (setting.model != "vit_b16" or "bn_adapt" not in parts)
    )


# What a user adds to the tables: an arm for a setting and a task, or None where it cannot run there.
ArmMaker = Callable[[Setting, Task], Arm | None]


def seeded_arm(arm: Arm, seed: int) -> Arm:
    """``arm`` with what its method draws following from ``seed``."""
    return replace(arm, method=_seeded(arm.method, seed))


def _seeded(method: Method, seed: int) -> Method:
    if isinstance(method, Sum):
        return replace(method, terms=tuple(_seeded(term, seed) for term in method.terms))  # type: ignore[misc]
    return with_options(method, {"seed": seed}) if "seed" in field_types(type(method)) else method


def follows_order(arm: Arm) -> bool:
    """Whether the order of the stream can matter to it; not to what never learns."""
    return arm.method.name != "source"
