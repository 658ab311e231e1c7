"""``regtta methods``: describe the methods, their requirements and their options; parsing of ``--method``."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args, get_origin

from regtta.methods import METHODS, Method, create_method, method_options
from regtta.options import check_choice, describe_type, field_types


@dataclass(frozen=True)
class OptionReport:
    """Description of a hyperparameter, as set by ``--set key=value``."""

    name: str
    type: str
    default: object
    meaning: str


@dataclass(frozen=True)
class MethodReport:
    """Description of a method.

    Attributes:
        name: name, as passed to ``--method``.
        summary: one line.
        needs: requirements: ``source statistics``, statistics beyond the moments, ``head``, ``labels``.
        paper: reference.
        options: hyperparameters.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    paper: str
    options: tuple[OptionReport, ...]

    def to_dict(self) -> dict[str, object]:
        """Return JSON-compatible values."""
        return dataclasses.asdict(self)


def parse_method(name: str, settings: tuple[str, ...] = ()) -> Method:
    """Return the method or sum of methods ``name``, with ``settings`` such as ``k=25``.

    Example:
        >>> parse_method("ssa", ("k=25", "metric=w2")).metric
        'w2'
        >>> parse_method("tent+ssa", ("k=25",)).terms[1].k
        25
    """
    return create_method(name, **method_options(name, settings))


def list_methods() -> tuple[MethodReport, ...]:
    """Return descriptions of all methods, in the order of the registry."""
    return tuple(describe_method(name) for name in METHODS)


def describe_method(name: str) -> MethodReport:
    """Return the description of the method ``name``.

    Example:
        >>> describe_method("source").needs
        ()
    """
    check_choice("the method", name, METHODS.keys())
    cls = METHODS[name]
    needs = {
        "source statistics": cls.needs_source,
        cls.extra_statistics: bool(cls.extra_statistics),
        "head": cls.needs_head,
        "labels": cls.takes_targets,
    }
    return MethodReport(
        name=name,
        summary=_strip_markup(inspect.cleandoc(cls.__doc__ or "").split("\n")[0]),
        needs=tuple(need for need, needed in needs.items() if needed),
        paper=cls.paper,
        options=_describe_options(cls),
    )


def parse_argument_docs(docstring: str) -> dict[str, str]:
    """Parse the ``Args:`` section of a docstring into a one-line description per argument.

    Example:
        >>> parse_argument_docs('''Return the result.
        ...
        ...     Args:
        ...         k: how many,
        ...             at most.
        ...         lr: rate.
        ... ''')
        {'k': 'how many, at most.', 'lr': 'rate.'}
    """
    block = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)*)", inspect.cleandoc(docstring), re.MULTILINE)
    if block is None:
        return {}
    lines = textwrap.dedent(block.group(1))
    entries = re.findall(r"^(\w+): ((?:.*)(?:\n[ ]+.*)*)", lines, re.MULTILINE)
    return {name: _strip_markup(" ".join(text.split())) for name, text in entries}


def _describe_options(cls: type[Method]) -> tuple[OptionReport, ...]:
    defaults = cls()
    meanings: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):  # a class overrides the descriptions of its bases
        meanings |= parse_argument_docs(ancestor.__doc__ or "")
    return tuple(
        OptionReport(name, _describe_typeable(kind), getattr(defaults, name), meanings.get(name, ""))
        for name, kind in field_types(cls).items()
    )


def _describe_typeable(kind: object) -> str:
    """Return the type of an option without alternatives that cannot be typed, such as callables."""
    alternatives = [part for part in get_args(kind) if get_origin(part) is not Callable]
    if get_origin(kind) is None or len(alternatives) == len(get_args(kind)):
        return describe_type(kind)
    return " | ".join(describe_type(part) for part in alternatives)


def _strip_markup(text: str) -> str:
    """Remove reStructuredText markup: double backticks and roles."""
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text.replace("``", ""))
