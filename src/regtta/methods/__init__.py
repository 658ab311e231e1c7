"""Adaptation methods, one per module, and the registry ``METHODS`` that maps their names to classes."""

from collections.abc import Mapping
from types import MappingProxyType

from regtta.methods.alignment import significance
from regtta.methods.base import (
    OPTIMIZERS,
    Batch,
    GradientMethod,
    Method,
    MethodContext,
    NewHead,
    Remember,
    Rule,
    Schedule,
    Skip,
    Update,
)
from regtta.methods.bn_adapt import BNAdapt
from regtta.methods.feature_alignment import FeatureAlignment
from regtta.methods.feature_restoration import FeatureRestoration
from regtta.methods.losses import symmetric_kl
from regtta.methods.no_adaptation import Source
from regtta.methods.oracle import Oracle
from regtta.methods.prototype import Prototype
from regtta.methods.registry import options_of, read_method
from regtta.methods.rsd import RSD
from regtta.methods.ssa import SSA
from regtta.methods.sums import Sum
from regtta.methods.tent import Tent
from regtta.methods.ttt import ROTATIONS, TTT, rotated
from regtta.methods.variance_minimization import VarianceMinimization

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "source": Source,
        "bn_adapt": BNAdapt,
        "feature_alignment": FeatureAlignment,
        "ssa": SSA,
        "feature_restoration": FeatureRestoration,
        "prototype": Prototype,
        "variance_minimization": VarianceMinimization,
        "rsd": RSD,
        "ttt": TTT,
        "tent": Tent,
        "oracle": Oracle,
    }
)


def method(name: str, **options: object) -> Method:
    """Return the method ``name``, or a weighted sum of methods such as ``"tent+0.5*ssa"``.

    In a sum, ``lr``, ``optimizer``, ``batch_norm``, ``trainable`` and ``steps`` apply to the sum as a whole and default
    to the values of its first term. Any other option is passed to every term that has it.

    Args:
        name: key in ``METHODS``, or names with optional weights joined by ``+``.
        options: hyperparameters that override the defaults.

    Example:
        >>> method("ssa", k=25).k
        25
        >>> method("tent+0.5*ssa", k=25, lr=1e-4).weights
        (1.0, 0.5)
    """
    return read_method(METHODS, name, options)


__all__ = [
    "METHODS",
    "OPTIMIZERS",
    "ROTATIONS",
    "RSD",
    "SSA",
    "TTT",
    "BNAdapt",
    "Batch",
    "FeatureAlignment",
    "FeatureRestoration",
    "GradientMethod",
    "Method",
    "MethodContext",
    "NewHead",
    "Oracle",
    "Prototype",
    "Remember",
    "Rule",
    "Schedule",
    "Skip",
    "Source",
    "Sum",
    "Tent",
    "Update",
    "VarianceMinimization",
    "method",
    "options_of",
    "read_method",
    "rotated",
    "significance",
    "symmetric_kl",
]
