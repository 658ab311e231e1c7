"""What every analysis gives back: frozen numbers, and the same numbers as JSON has them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Report:
    """The numbers of one analysis. Figures are drawn from it alone, so that they show what the JSON holds."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it: arrays are lists, what is not finite is ``None``.

        Example:
            >>> @dataclass(frozen=True, eq=False)
            ... class Means(Report):
            ...     means: Array
            >>> Means(np.array([1.5, np.nan])).plain()
            {'means': [1.5, None]}
        """
        return cast(dict[str, Any], _plain(self))


def array(values: Tensor) -> Array:
    """``values`` as float64 on the CPU, outside of torch."""
    return values.detach().cpu().double().numpy()


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value
