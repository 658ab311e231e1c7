"""Keys and functions that the user passes as options, with errors that name the option."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regtta.errors import OptionError

_MISTAKES = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def call_given(option: str, function: Callable[[Any], Any], value: object) -> Any:
    """Return ``function(value)``; raise an OptionError that names the option if it fails as wrong code does.

    Example:
        >>> call_given("inputs", lambda batch: batch["image"], {"x": 1})
        Traceback (most recent call last):
        regtta.errors.OptionError: The callable inputs= failed with KeyError: 'image'. It was called with a dict...
    """
    try:
        return function(value)
    except _MISTAKES as error:
        raise OptionError(
            f"The callable {option}= failed with {type(error).__name__}: {error}. It was called with "
            f"{_describe(value)}; correct it to accept that."
        ) from error


def is_key(value: object) -> bool:
    """Return True for a key or an index: a string, or an integer that is not a boolean."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, dict):
        return f"a dict with the keys {list(value)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
