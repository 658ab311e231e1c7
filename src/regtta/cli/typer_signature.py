"""Typer parameters made from the fields of an options dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ParameterInfo

from regtta.cli.shared_options import TextParser


def takes_options(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a typer command of a function whose first parameter is a dataclass of options.

    The command has the other parameters of the function, then one for each field of ``kind``. Fields are annotated
    ``Annotated[type, typer.Option(...)]``. A field of type ``tuple[T, ...]`` is a repeatable option or argument;
    with a :class:`TextParser` in its annotation, it is one text that the parser converts.
    """
    hints = get_type_hints(kind, include_extras=True)
    declared = fields(kind)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *others = inspect.signature(function).parameters.values()

        @wraps(function)
        def command(**given: Any) -> None:
            values = {field.name: _value(hints[field.name], given.pop(field.name)) for field in declared}
            function(kind(**values), **given)

        expanded = [_parameter(field, hints[field.name]) for field in declared]
        command.__signature__ = inspect.Signature([*others, *expanded])  # type: ignore[attr-defined]
        return command

    return decorate


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    """Return the parameter that typer reads in place of ``field``."""
    kind, *metadata = get_args(hint)
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if _parser(hint) is not None:
        kind, default = str, ""
    elif get_origin(kind) is tuple:
        kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc]
    info = next(each for each in metadata if isinstance(each, ParameterInfo))
    annotation = Annotated[kind, info]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(hint: Any, given: Any) -> object:
    """Convert what typer parsed to the type of the field."""
    parser = _parser(hint)
    if parser is not None:
        return parser.parse(given)
    return tuple(given or ()) if get_origin(get_args(hint)[0]) is tuple else given


def _parser(hint: Any) -> TextParser | None:
    return next((each for each in get_args(hint)[1:] if isinstance(each, TextParser)), None)
