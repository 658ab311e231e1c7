"""Every method by name. A method is one file here and one line in ``METHODS``."""

from collections.abc import Mapping
from types import MappingProxyType

from regtta.methods.base import Batch, GradientMethod, Method, NewHead, Rule, Schedule, Stage
from regtta.methods.bn_adapt import BNAdapt
from regtta.methods.feature_alignment import FeatureAlignment
from regtta.methods.source import Source
from regtta.methods.ssa import SSA
from regtta.options import check_choice, replace

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "source": Source,
        "bn_adapt": BNAdapt,
        "feature_alignment": FeatureAlignment,
        "ssa": SSA,
    }
)


def method(name: str, **options: object) -> Method:
    """A method by its name, with hyperparameters other than the defaults.

    Example:
        >>> method("ssa", k=25).k
        25
    """
    check_choice("the method", name, METHODS.keys())
    return replace(METHODS[name](), options)


__all__ = [
    "METHODS",
    "SSA",
    "BNAdapt",
    "Batch",
    "FeatureAlignment",
    "GradientMethod",
    "Method",
    "NewHead",
    "Rule",
    "Schedule",
    "Source",
    "Stage",
    "method",
]
