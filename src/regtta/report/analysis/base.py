"""Base class of the results of all analyses, with conversion to and from JSON."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, Self, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regtta.errors import InvalidFileError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """Immutable result of one analysis. Figures are drawn from it alone, so that they can be redrawn from its JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict: arrays become lists, non-finite numbers ``None``.

        Example:
            >>> @dataclass(frozen=True, eq=False)
            ... class Means(AnalysisResult):
            ...     means: Array
            >>> Means(np.array([1.5, np.nan])).to_dict()
            {'means': [1.5, None]}
        """
        return cast(dict[str, Any], to_json_value(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore a result from the dict that :meth:`to_dict` returned.

        Example:
            >>> @dataclass(frozen=True, eq=False)
            ... class Means(AnalysisResult):
            ...     means: Array
            >>> Means.from_dict({"means": [1.5, None]}).means
            array([1.5, nan])
        """
        try:
            return cast(Self, _from_json_value(cls, values))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InvalidFileError(
                f"Expected a valid {cls.__name__}, found one that cannot be read: {error}."
            ) from error


def to_numpy(values: Tensor) -> Array:
    """Return ``values`` as a float64 NumPy array."""
    return values.detach().cpu().double().numpy()


def _from_json_value(kind: Any, value: Any) -> Any:
    """Convert ``value``, as parsed from JSON, to the type ``kind``."""
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping) or {item.name for item in fields(kind)} - value.keys():
            raise InvalidFileError(f"Expected the fields of {kind.__name__}, found {_describe_value(value)}.")
        hints = get_type_hints(kind)
        return kind(**{item.name: _from_json_value(hints[item.name], value[item.name]) for item in fields(kind)})
    origin, inner = get_origin(kind), get_args(kind)
    if NoneType in inner:
        return None if value is None else _from_json_value(inner[0], value)
    if origin is np.ndarray:
        return np.array(value, dtype=get_args(inner[1])[0])  # None becomes NaN
    if origin is Mapping:
        return {key: _from_json_value(inner[1], item) for key, item in value.items()}
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_from_json_value(one, item) for one, item in zip(kinds, value, strict=True))
    return math.nan if kind is float and value is None else value


def _describe_value(value: object) -> str:
    return str(sorted(value)) if isinstance(value, Mapping) else type(value).__name__


def to_json_value(value: object) -> object:
    """Convert ``value`` for JSON: arrays become lists, dataclasses dicts, and non-finite numbers ``None``."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if is_dataclass(value):
        return {item.name: to_json_value(getattr(value, item.name)) for item in fields(value)}
    return value
