"""Packages that only some parts of the monitor need."""

import importlib
from typing import Any

from regtta.errors import MissingExtraError


def extra_package(name: str, needed_for: str) -> Any:  # whatever module it is
    """The module ``name``, or the error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{needed_for} needs {name.partition('.')[0]}, and {error.name} is not installed: "
            "pip install 'regtta[monitor]'."
        ) from error
