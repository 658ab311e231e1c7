"""Descriptions of functions, partials and objects in plain values, equal across processes, to compare options."""

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from regtta.options import fields_to_describe

# Modules whose functions may be options, by the name that files have had for them from the beginning.
_FIRST_NAMES = {"regtta.models.augmentation": "regtta.augmentation"}
_PLAIN = (str, int, float, bool, type(None))
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
_MAX_DEPTH = 8  # nesting of objects; deeper ones are identified by their class


def describe_value(value: object, describe: Callable[[object], object], depth: int = 0) -> object:
    """Return a description of ``value`` in plain values that does not depend on memory addresses.

    Functions are identified by module and name, classes by name, partials by their function and arguments, torch
    modules by their class and the digest of their tensors, other objects by their class and attributes.

    Args:
        value: any value of an option.
        describe: function that describes a dataclass.
        depth: nesting depth of ``value``.

    Example:
        >>> describe_value(functools.partial(sorted, reverse=True), lambda options: {})
        {'partial': 'builtins.sorted', 'arguments': [], 'keywords': {'reverse': True}}
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, type):
        return _serialized(value, value.__qualname__)
    if inspect.isroutine(value) and not inspect.ismethod(value):
        return _name(value)
    if depth >= _MAX_DEPTH:
        return _name(type(value))
    if dataclasses.is_dataclass(value):
        return describe(value)

    def inside(item: object) -> object:
        return describe_value(item, describe, depth + 1)

    def attribute(item: object) -> object:
        # Attributes of attributes are identified by their class, since an object may refer to the whole program.
        return describe_value(item, describe, max(depth + 1, _MAX_DEPTH - 2))

    known = _container(value, inside) if isinstance(value, Collection) else _wrapper(value, inside)
    return known if known is not None else _tensors(value) or _object(value, attribute)


def same_description(found: object, own: object) -> bool:
    """Return True if two descriptions are equal; ``found`` may contain arbitrary values, including tensors."""
    if isinstance(own, Mapping):
        same_keys = isinstance(found, Mapping) and found.keys() == own.keys()
        return same_keys and all(same_description(found[key], own[key]) for key in own)  # type: ignore[index]
    if isinstance(own, list | tuple):
        alike = isinstance(found, list | tuple) and len(found) == len(own)
        return alike and all(map(same_description, found, own))  # type: ignore[call-overload]
    return isinstance(found, str | int | float | None) and found == own


def _container(value: object, inside: Callable[[object], object]) -> list[object] | dict[str, object] | None:
    if isinstance(value, list | tuple):
        return [inside(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((inside(item) for item in value), key=str)
    if isinstance(value, Mapping):
        return {str(key): inside(item) for key, item in value.items()}
    return None


def _wrapper(value: object, inside: Callable[[object], object]) -> str | dict[str, object] | None:
    """Return the parts of a partial or bound method, or the name of a callable wrapped like a function."""
    if isinstance(value, functools.partial):
        keywords = {key: inside(item) for key, item in sorted(value.keywords.items())}
        return {"partial": inside(value.func), "arguments": [*map(inside, value.args)], "keywords": keywords}
    if inspect.ismethod(value):
        return {"method": _name(value.__func__), "of": inside(value.__self__)}
    return _name(value) if isinstance(getattr(value, "__qualname__", None), str) else None


def _tensors(value: object) -> dict[str, object] | None:
    """Return the class and digest of a tensor or torch module; ``None`` for anything else."""
    if "torch" not in sys.modules:
        return None
    from torch import Tensor, nn

    from regtta.models import digest_tensors

    if isinstance(value, Tensor):
        return {"type": type(value).__name__, "values": digest_tensors({"": value})}
    if isinstance(value, nn.Module):
        state = {name: item for name, item in value.state_dict().items() if isinstance(item, Tensor)}
        return {"type": _name(type(value)), "weights": digest_tensors(state)}
    return None


def _object(value: object, inside: Callable[[object], object]) -> object:
    text = repr(value)
    if not callable(value) and not _ADDRESS.search(text):
        return text  # complete without addresses, as for an enumeration member or a path
    attributes = getattr(value, "__dict__", {})
    return {"type": _name(type(value)), **{str(name): inside(item) for name, item in sorted(attributes.items())}}


def _name(value: object) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", type(value).__qualname__)
    return f"{_module_name(module)}.{name}" if isinstance(module, str) else str(name)


def _module_name(module: str) -> str:
    """Return ``module`` by its first name, or the name under which the running script would be imported."""
    if module not in ("__main__", "__mp_main__"):
        return _FIRST_NAMES.get(module, module)
    main = sys.modules.get(module)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name not in ("__main__", "__mp_main__"):
        return str(spec.name)
    return Path(file).stem if isinstance(file, str) else module


def serialized_name(cls: type) -> str:
    """Return the name of a class in files, which stays the same when the class is renamed.

    A renamed class defines ``serialized_name: ClassVar[str]``, its first name; subclasses do not inherit it.

    Example:
        >>> class Renamed:
        ...     serialized_name = "FirstName"
        >>> class Derived(Renamed):
        ...     pass
        >>> serialized_name(Renamed), serialized_name(Derived)
        ('FirstName', 'Derived')
    """
    return _serialized(cls, cls.__name__)


def _serialized(cls: type, name: str) -> str:
    return str(vars(cls).get("serialized_name", name))


def to_dict(options: object) -> dict[str, object]:
    """Return the name of a dataclass and its options in plain values, equal across processes.

    Options of :func:`regtta.options.added_later` are left out at their earlier values.

    Example:
        >>> @dataclasses.dataclass
        ... class Options:
        ...     rate: float = 0.1
        >>> to_dict(Options())
        {'type': 'Options', 'rate': 0.1}
    """
    return {"type": serialized_name(type(options)), **_fields(options, _plain)}


def to_dict_v0_1_0(options: object) -> dict[str, object]:
    """Return the result of :func:`to_dict` in version 0.1.0, to compare with files it wrote."""
    return {"type": serialized_name(type(options)), **_fields(options, _plain_by_0_1_0)}


def _fields(options: object, plain: Callable[[object], object]) -> dict[str, object]:
    return {name: plain(getattr(options, name)) for name in fields_to_describe(options)}


def _plain(value: object) -> object:
    """Return an option in plain values, without memory addresses or anything else specific to a process."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # a subclass, such as that of defaults, could not be read from a file of tensors
    if isinstance(value, _PLAIN):
        return value
    return describe_value(value, to_dict)


def _plain_by_0_1_0(value: object) -> object:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple):
        return [_plain_by_0_1_0(item) for item in value]
    if dataclasses.is_dataclass(value):
        return to_dict_v0_1_0(value)
    return getattr(value, "__qualname__", None) or repr(value)
