"""Import of optional packages."""

import importlib
from typing import Any

from regtta.errors import MissingExtraError


def extra_package(name: str, needed_for: str) -> Any:  # a module without static type
    """Import and return the module ``name``; raise a MissingExtraError with installation advice if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{needed_for} needs {name.partition('.')[0]}, but {error.name} is not installed: "
            "pip install 'regtta[monitor]'."
        ) from error
