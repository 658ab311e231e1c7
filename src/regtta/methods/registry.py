"""Parsing of method names and of weighted sums such as ``"tent+0.5*ssa"``."""

from collections.abc import Iterable, Mapping
from typing import Any

from regtta.errors import OptionError
from regtta.methods.base import GradientMethod, Method
from regtta.methods.sums import Sum
from regtta.options import check_choice, field_types, parse_options, replace, unknown_option_error

_SHARED = frozenset(field_types(GradientMethod))


def read_method(table: Mapping[str, type[Method]], text: str, options: Mapping[str, object]) -> Method:
    """Return the method or sum that ``text`` names in ``table``, with ``options`` set."""
    weights, classes = _terms(table, text)
    if len(classes) == 1 and weights == (1.0,):
        return replace(classes[0](), options)
    known = _known(classes)
    for name in options:
        if name not in known:
            raise unknown_option_error(text, name, known)
    terms = tuple(replace(cls(), {n: v for n, v in options.items() if n in field_types(cls)}) for cls in classes)
    first = terms[0]
    if not isinstance(first, GradientMethod):
        raise OptionError(f"{first.name} has no loss to minimise, so it cannot be part of a sum.")
    shared = {name: getattr(first, name) for name in _SHARED}
    return Sum(terms=terms, weights=weights, **shared)  # type: ignore[arg-type]


def options_of(table: Mapping[str, type[Method]], text: str, assignments: Iterable[str]) -> dict[str, object]:
    """Parse assignments such as ``"k=25"`` into options of the method or sum ``text``."""
    return parse_options(text, _known(_terms(table, text)[1]), assignments)


def _terms(table: Mapping[str, type[Method]], text: str) -> tuple[tuple[float, ...], list[type[Method]]]:
    weights, classes = [], []
    for part in text.split("+"):
        weight, star, name = part.rpartition("*")
        check_choice("the method", name.strip(), table.keys())
        try:
            weights.append(float(weight) if star else 1.0)
        except ValueError as error:
            raise OptionError(f"Expected weight*method in {text!r}, found {part!r}.") from error
        classes.append(table[name.strip()])
    return tuple(weights), classes


def _known(classes: Iterable[type[Method]]) -> dict[str, Any]:
    return {name: kind for cls in classes for name, kind in field_types(cls).items()}
