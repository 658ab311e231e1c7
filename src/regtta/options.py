"""Validation, replacement, parsing and description of hyperparameters."""

import dataclasses
import difflib
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regtta.errors import OptionError

T = TypeVar("T")
_ADDED_LATER = "added_later"


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise an OptionError unless ``value`` is one of ``choices``."""
    try:
        known = value in choices
    except (TypeError, ValueError):  # unhashable values, or arrays whose comparison has no truth value
        known = False
    if not known:
        raise OptionError(
            f"Expected {name} to be one of {sorted(map(str, choices))}, found {value!r}."
            + did_you_mean(str(value), map(str, choices))
        )


def check_bool(name: str, value: object) -> None:
    """Raise an OptionError unless ``value`` is a bool: a string such as "no" would be truthy."""
    if not isinstance(value, bool):
        raise OptionError(f"Expected {name} to be True or False, found {value!r}.")


def check_positive(name: str, value: float) -> None:
    """Raise an OptionError unless ``value`` is a finite number above 0."""
    if not _is_finite_number(value) or value <= 0:
        raise OptionError(f"Expected {name} to be a number above 0 and finite, found {value!r}.")


def check_non_negative(name: str, value: float) -> None:
    """Raise an OptionError unless ``value`` is a finite number of at least 0."""
    if not _is_finite_number(value) or value < 0:
        raise OptionError(f"Expected {name} to be a number of at least 0 and finite, found {value!r}.")


def check_fraction(name: str, value: float) -> None:
    """Raise an OptionError unless ``0 < value < 1``."""
    if not _is_finite_number(value) or not 0 < value < 1:
        raise OptionError(f"Expected {name} to be a number between 0 and 1, found {value!r}.")


def check_momentum(name: str, value: float | None) -> None:
    """Raise an OptionError unless ``value`` is None or ``0 < value <= 1``."""
    if value is not None and (not _is_finite_number(value) or not 0 < value <= 1):
        raise OptionError(f"Expected {name} to be None or a number above 0 and at most 1, found {value!r}.")


def _is_finite_number(value: object) -> bool:
    """Return True if ``value`` is an int or float within the finite range of a float."""
    largest = sys.float_info.max
    return isinstance(value, int | float) and not isinstance(value, bool) and -largest <= value <= largest


def check_positive_int(name: str, value: object) -> None:
    """Raise an OptionError unless ``value`` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"Expected {name} to be a whole number of at least 1, found {value!r}.")


class DefaultInt(int):
    """Integer that is the default of an option, so that it can be told from the same number given by the user.

    Equal to, printed as and stored as the plain integer.

    Example:
        >>> default = DefaultInt(100)
        >>> default == 100, default, isinstance(default, DefaultInt), isinstance(100, DefaultInt)
        (True, 100, True, False)
    """


def check_non_negative_int(name: str, value: object) -> None:
    """Raise an OptionError unless ``value`` is an integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise OptionError(f"Expected {name} to be a whole number of at least 0, found {value!r}.")


def check_instances(kind: type[T], name: str, values: object, example: str) -> tuple[T, ...]:
    """Return ``values`` as a tuple; raise an OptionError with ``example`` unless all are instances of ``kind``."""
    wrong = values
    if isinstance(values, Iterable) and not isinstance(values, str):
        items = tuple(values)
        others = [item for item in items if not isinstance(item, kind)]
        if not others:
            return items
        wrong = others[0]
    found = (
        f"the class {wrong.__name__}, of which {wrong.__name__}() is one" if isinstance(wrong, type) else repr(wrong)
    )
    raise OptionError(f"Expected {name} to be a tuple of instances of {kind.__name__}, found {found}. Pass {example}.")


def replace(options: T, changes: Mapping[str, object]) -> T:
    """Return a copy of the dataclass ``options`` with ``changes``; raise an OptionError for unknown names.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Options:
        ...     rate: float = 0.1
        >>> replace(Options(), {"rate": 0.2})
        Options(rate=0.2)
    """
    known = field_types(type(options))
    for name in changes:
        if name not in known:
            raise unknown_option_error(type(options).__name__, name, known)
    return dataclasses.replace(options, **changes)  # type: ignore[type-var]


def parse_options(owner: str, known: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, object]:
    """Parse assignments such as ``"k=25"`` into options of ``owner``, by the types in ``known``.

    Example:
        >>> parse_options("Options", {"rate": float, "k": int | Literal["auto"]}, ["k=auto", "rate=1e-3"])
        {'k': 'auto', 'rate': 0.001}
    """
    parsed: dict[str, object] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"Expected key=value, found {text!r}.")
        if name not in known:
            raise unknown_option_error(owner, name, known)
        parsed[name] = _parse(name, value, known[name])
    return parsed


def added_later(default: T, *, earlier: object = _ADDED_LATER) -> T:
    """Return a dataclass field that descriptions leave out at the value that keeps the earlier behaviour.

    Files and keys of runs from before the field existed thereby stay valid.

    Args:
        default: default of the field.
        earlier: value that keeps the behaviour from before the field existed; the default if not given.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Options:
        ...     rate: float = 0.1
        ...     restore: float = added_later(0.0)
        >>> Options(), fields_to_describe(Options()), fields_to_describe(Options(restore=0.5))
        (Options(rate=0.1, restore=0.0), ['rate'], ['rate', 'restore'])
    """
    kept = default if earlier is _ADDED_LATER else earlier
    return dataclasses.field(default=default, metadata={_ADDED_LATER: kept})


def fields_to_describe(options: object) -> list[str]:
    """Return the names of the fields of a dataclass, without those of :func:`added_later` at their earlier values."""
    return [
        item.name
        for item in (dataclasses.fields(options) if dataclasses.is_dataclass(options) else ())
        if _ADDED_LATER not in item.metadata or getattr(options, item.name) != item.metadata[_ADDED_LATER]
    ]


def field_types(cls: type) -> dict[str, Any]:
    """Return the fields of a dataclass with their types; empty for any other class."""
    if not dataclasses.is_dataclass(cls):
        return {}
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls)}


def unknown_option_error(owner: str, name: str, known: Iterable[str]) -> OptionError:
    """Return the OptionError for an option that ``owner`` does not have."""
    return OptionError(f"{owner} has no option {name!r}; it has {sorted(known) or 'none'}." + did_you_mean(name, known))


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parse(name: str, text: str, kind: object) -> object:
    """Parse ``text`` as the first of the types in ``kind`` that accepts it."""
    for option in _alternatives(kind):
        if option is type(None) and text.lower() == "none":
            return None
        if get_origin(option) is Literal and text in get_args(option):
            return text
        if option is bool and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if option in (int, float):
            try:
                return option(text)
            except ValueError:
                continue
        if option is str:
            return text
    raise OptionError(f"Cannot read {name}={text!r}: expected {describe_type(kind)}.")


def describe_type(kind: object) -> str:
    """Return a type in the notation of its values on the command line.

    Example:
        >>> describe_type(int | Literal["auto"] | None)
        'int | "auto" | none'
    """
    return " | ".join(_describe_single_type(option) for option in _alternatives(kind))


def _describe_single_type(option: object) -> str:
    if option is type(None):
        return "none"
    if get_origin(option) is Literal:
        return " | ".join(f'"{value}"' for value in get_args(option))
    return getattr(option, "__name__", str(option))


def _alternatives(kind: object) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the names closest to ``name``, to append to an error; empty if none is close.

    Example:
        >>> did_you_mean("metrik", ["metric", "k"])
        " Did you mean 'metric'?"
    """
    near = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Return names on one line, at most ``most`` of them.

    Example:
        >>> list_names(["a", "b"]), list_names("abcde", most=3)
        ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
