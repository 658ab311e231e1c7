"""Lazy imports of the packages of the extra ``analysis``."""

import importlib
import warnings
from typing import Any

from regtta.errors import MissingExtraError


def imported(module: str, package: str, feature: str) -> Any:
    """Import and return ``module``; raise an error that says which package ``feature`` requires if it is missing."""
    try:
        with warnings.catch_warnings():
            # umap warns on import that TensorFlow, which is not used here, is missing.
            warnings.simplefilter("ignore", ImportWarning)
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{feature} requires {package}, which is not installed. Run: pip install 'regtta[analysis]'."
        ) from error
