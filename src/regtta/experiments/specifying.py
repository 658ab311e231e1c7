"""A method as part of what a run is specified by."""

from collections.abc import Mapping

from regtta.methods import Method, Sum
from regtta.options import described

# Options that came after results had been committed. At these values a method does what it did before they were there,
# so runs of before and after share their keys.
_CAME_LATER: dict[str, object] = {"prior": 32, "window": 0, "free_output": False}
REVISION = "revision"


def specified(method: Method) -> dict[str, object]:
    """The name and options of ``method`` in plain values, and its revision where there was more than one.

    Example:
        >>> from regtta.methods import RSD, SSA
        >>> "window" in specified(SSA()), specified(SSA(window=64))["window"]
        (False, 64)
        >>> "revision" in specified(SSA()), specified(RSD())["revision"]
        (False, 1)
    """
    options = _without_later(described(method))
    if isinstance(method, Sum):
        options["terms"] = [specified(term) for term in method.terms]
    return revised(options, method.revision)


def _without_later(options: Mapping[str, object]) -> dict[str, object]:
    return {name: _within(value) for name, value in options.items() if _CAME_LATER.get(name, _ABSENT) != value}


def _within(value: object) -> object:
    """The terms of a sum are described within its own description."""
    if isinstance(value, list):
        return [_within(item) for item in value]
    return _without_later(value) if isinstance(value, dict) else value


def revised(options: dict[str, object], revision: int) -> dict[str, object]:
    """``options`` with the revision of what they belong to; the first one, 0, leaves the keys of runs as they are."""
    return options | {REVISION: revision} if revision else options


def without_revisions(specification: object) -> object:
    """A specification as it would be if nothing had ever been revised: equal for runs that differ in that alone.

    Example:
        >>> without_revisions({"method": {"type": "RSD", "revision": 1}})
        {'method': {'type': 'RSD'}}
    """
    if isinstance(specification, Mapping):
        return {name: without_revisions(value) for name, value in specification.items() if name != REVISION}
    if isinstance(specification, list):
        return [without_revisions(item) for item in specification]
    return specification


_ABSENT = object()
