"""Test-time adaptation for regression models.

The names below are imported when they are first used, so that the command line answers before torch
has loaded.
"""

import importlib
import logging
from typing import TYPE_CHECKING

from regtta._version import __version__

if TYPE_CHECKING:
    from regtta.adapter import Adapter
    from regtta.collecting import collect
    from regtta.errors import RegttaError
    from regtta.methods import METHODS, SSA, BNAdapt, FeatureAlignment, Source, method
    from regtta.metrics import RegressionMetrics
    from regtta.statistics import SourceStatistics, fingerprint
    from regtta.steps import Diagnostics, Step, Verdict

_HOMES = {
    "Adapter": "adapter",
    "BNAdapt": "methods",
    "Diagnostics": "steps",
    "FeatureAlignment": "methods",
    "METHODS": "methods",
    "RegressionMetrics": "metrics",
    "RegttaError": "errors",
    "SSA": "methods",
    "Source": "methods",
    "SourceStatistics": "statistics",
    "Step": "steps",
    "Verdict": "steps",
    "collect": "collecting",
    "fingerprint": "statistics",
    "method": "methods",
}

__all__ = [
    "METHODS",
    "SSA",
    "Adapter",
    "BNAdapt",
    "Diagnostics",
    "FeatureAlignment",
    "RegressionMetrics",
    "RegttaError",
    "Source",
    "SourceStatistics",
    "Step",
    "Verdict",
    "__version__",
    "collect",
    "fingerprint",
    "method",
]

logging.getLogger("regtta").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"regtta.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'regtta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
