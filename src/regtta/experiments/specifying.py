"""A method as part of what a run is specified by."""

from collections.abc import Mapping

from regtta.methods import Method
from regtta.options import described

# Options that came after results had been committed. At these values a method does what it did before they were there,
# so runs of before and after share their keys.
_CAME_LATER: dict[str, object] = {"prior": 32, "window": 0, "free_output": False}


def specified(method: Method) -> dict[str, object]:
    """The name and options of ``method`` in plain values.

    Example:
        >>> from regtta.methods import SSA
        >>> "window" in specified(SSA()), specified(SSA(window=64))["window"]
        (False, 64)
    """
    return _without_later(described(method))


def _without_later(options: Mapping[str, object]) -> dict[str, object]:
    return {name: _within(value) for name, value in options.items() if _CAME_LATER.get(name, _ABSENT) != value}


def _within(value: object) -> object:
    """The terms of a sum are described within its own description."""
    if isinstance(value, list):
        return [_within(item) for item in value]
    return _without_later(value) if isinstance(value, dict) else value


_ABSENT = object()
