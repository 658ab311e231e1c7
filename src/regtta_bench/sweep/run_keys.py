"""Description of a method within the specification of a run."""

from collections.abc import Mapping

from regtta.methods import Method, Sum
from regtta.persistence import to_dict

# Options added after results were committed. At these values a method behaves as before, so they are left out and the
# keys of earlier runs stay valid.
_CAME_LATER: dict[str, object] = {"prior": 32, "window": 0, "free_output": False}
REVISION = "revision"


def specified(method: Method) -> dict[str, object]:
    """Return the name and options of ``method`` as JSON values, with its revision if it was ever revised.

    Example:
        >>> from regtta.methods import RSD, SSA
        >>> "window" in specified(SSA()), specified(SSA(window=64))["window"]
        (False, 64)
        >>> "revision" in specified(SSA()), specified(RSD())["revision"]
        (False, 1)
    """
    options = _without_later(to_dict(method))
    if isinstance(method, Sum):
        options["terms"] = [specified(term) for term in method.terms]
    return revised(options, method.revision)


def _without_later(options: Mapping[str, object]) -> dict[str, object]:
    return {name: _within(value) for name, value in options.items() if _CAME_LATER.get(name, _ABSENT) != value}


def _within(value: object) -> object:
    """Apply :func:`_without_later` to nested descriptions, such as the terms of a sum."""
    if isinstance(value, list):
        return [_within(item) for item in value]
    return _without_later(value) if isinstance(value, dict) else value


def revised(options: dict[str, object], revision: int) -> dict[str, object]:
    """Return ``options`` with ``revision``; revision 0 is left out, so that keys of unrevised runs stay valid."""
    return options | {REVISION: revision} if revision else options


def without_revisions(specification: object) -> object:
    """Return ``specification`` without any revisions, so that runs that differ only in a revision compare equal.

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
