"""Description of a method within the specification of a run."""

from collections.abc import Iterable, Mapping

from regtta.guards import Guard
from regtta.methods import Method, Sum
from regtta.persistence import to_dict

# Options added after results were committed. At these values a method behaves as before, so they are left out and the
# keys of earlier runs stay valid.
_LATER_DEFAULTS: dict[str, object] = {"prior": 32, "window": 0, "free_output": False}
REVISION = "revision"


def describe_method(method: Method) -> dict[str, object]:
    """Return the name and options of ``method`` as JSON values, with its revision if it was ever revised.

    Example:
        >>> from regtta.methods import RSD, SSA
        >>> "window" in describe_method(SSA()), describe_method(SSA(window=64))["window"]
        (False, 64)
        >>> "revision" in describe_method(SSA()), describe_method(RSD())["revision"]
        (False, 1)
    """
    options = _drop_later_defaults(to_dict(method))
    if isinstance(method, Sum):
        options["terms"] = [describe_method(term) for term in method.terms]
    return with_revision(options, method.revision)


def describe_guards(guards: Iterable[Guard]) -> list[dict[str, object]]:
    """Return the names and thresholds of ``guards`` as JSON values."""
    return [to_dict(guard) for guard in guards]


def _drop_later_defaults(options: Mapping[str, object]) -> dict[str, object]:
    return {name: _drop_nested(value) for name, value in options.items() if _LATER_DEFAULTS.get(name, _ABSENT) != value}


def _drop_nested(value: object) -> object:
    """Apply :func:`_drop_later_defaults` to nested descriptions, such as the terms of a sum."""
    if isinstance(value, list):
        return [_drop_nested(item) for item in value]
    return _drop_later_defaults(value) if isinstance(value, dict) else value


def with_revision(options: dict[str, object], revision: int) -> dict[str, object]:
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
