"""Test-time adaptation for regression models.

Public names and submodules such as ``regtta.guards`` are imported on first access, so that the command line can
respond without loading torch.
"""

import importlib
import importlib.util
import logging
import pkgutil
from typing import TYPE_CHECKING

from regtta._version import __version__

if TYPE_CHECKING:
    from regtta.adapter import Adapter
    from regtta.checks import CheckResult, Finding, check
    from regtta.errors import RegttaError
    from regtta.execution import FAST, Execution
    from regtta.guards import SAFE, Guard
    from regtta.methods import (
        CWSA,
        METHODS,
        PSC,
        RSD,
        SSA,
        TTT,
        ActMAD,
        Auto,
        BNAdapt,
        Consistency,
        DareGram,
        FeatureAlignment,
        FeatureRestoration,
        GradientMethod,
        Method,
        NoAdaptation,
        Oracle,
        Prototype,
        RecalibrateOnce,
        Recentre,
        Recolour,
        Sum,
        Tent,
        VarianceMinimization,
        create_method,
    )
    from regtta.metrics import RegressionMetrics
    from regtta.models import fingerprint
    from regtta.monitoring import Monitor
    from regtta.persistence import Checkpoint
    from regtta.selection import Selection, select
    from regtta.statistics import SourceStatistics, collect
    from regtta.types import Callback, Diagnostics, FeedbackScores, Step, StepView, Verdict

_HOMES = {
    "ActMAD": "methods",
    "Consistency": "methods",
    "CWSA": "methods",
    "DareGram": "methods",
    "PSC": "methods",
    "RecalibrateOnce": "methods",
    "Recentre": "methods",
    "Recolour": "methods",
    "Adapter": "adapter",
    "Auto": "methods",
    "BNAdapt": "methods",
    "Callback": "types",
    "CheckResult": "checks",
    "Checkpoint": "persistence",
    "Diagnostics": "types",
    "Execution": "execution",
    "FAST": "execution",
    "FeatureAlignment": "methods",
    "FeatureRestoration": "methods",
    "FeedbackScores": "types",
    "Finding": "checks",
    "METHODS": "methods",
    "Guard": "guards",
    "GradientMethod": "methods",
    "Method": "methods",
    "Monitor": "monitoring",
    "Oracle": "methods",
    "Prototype": "methods",
    "RSD": "methods",
    "RegressionMetrics": "metrics",
    "RegttaError": "errors",
    "SAFE": "guards",
    "SSA": "methods",
    "NoAdaptation": "methods",
    "Selection": "selection",
    "SourceStatistics": "statistics",
    "Step": "types",
    "StepView": "types",
    "Sum": "methods",
    "TTT": "methods",
    "Tent": "methods",
    "VarianceMinimization": "methods",
    "Verdict": "types",
    "check": "checks",
    "collect": "statistics",
    "fingerprint": "models",
    "create_method": "methods",
    "select": "selection",
}

__all__ = [
    "CWSA",
    "FAST",
    "METHODS",
    "PSC",
    "RSD",
    "SAFE",
    "SSA",
    "TTT",
    "ActMAD",
    "Adapter",
    "Auto",
    "BNAdapt",
    "Callback",
    "CheckResult",
    "Checkpoint",
    "Consistency",
    "DareGram",
    "Diagnostics",
    "Execution",
    "FeatureAlignment",
    "FeatureRestoration",
    "FeedbackScores",
    "Finding",
    "GradientMethod",
    "Guard",
    "Method",
    "Monitor",
    "NoAdaptation",
    "Oracle",
    "Prototype",
    "RecalibrateOnce",
    "Recentre",
    "Recolour",
    "RegressionMetrics",
    "RegttaError",
    "Selection",
    "SourceStatistics",
    "Step",
    "StepView",
    "Sum",
    "Tent",
    "VarianceMinimization",
    "Verdict",
    "__version__",
    "check",
    "collect",
    "create_method",
    "fingerprint",
    "select",
]

logging.getLogger("regtta").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"regtta.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(f"regtta.{name}") is not None:
        return importlib.import_module(f"regtta.{name}")
    raise AttributeError(f"module 'regtta' has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted({*__all__, *(name for name in modules if not name.startswith("_"))})
