"""Packages of the extra ``analysis``, imported where they are used."""

import importlib
import warnings
from typing import Any

from regtta.errors import MissingExtraError


def imported(module: str, package: str, what: str) -> Any:
    """``module``, or the error that says what to install so that ``what`` can be done."""
    try:
        with warnings.catch_warnings():
            # umap says on import that TensorFlow, which nothing here uses, is missing.
            warnings.simplefilter("ignore", ImportWarning)
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {package}, which is not installed: pip install 'regtta[analysis]'."
        ) from error
