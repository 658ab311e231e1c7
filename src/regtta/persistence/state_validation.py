"""Validation of saved states before anything is loaded from them.

States come from files, which may be damaged or malicious: a tensor of the wrong shape corrupts memory in kernels that
do not check it, and a value of the wrong type fails many batches later. Every function takes the path of a field, such
as ``learner/batch_norm/updates``, and raises a :class:`regtta.errors.StateError` that names it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regtta.errors import StateError

# Largest integer up to which a float64 represents every integer.
MAX_COUNT = 2**53
_MAX_SHOWN_LENGTH = 80


def validate_part(part: object, state: object, path: str) -> None:
    """Validate ``state`` with ``part.validate_state``, if that applies to the state that ``part`` writes.

    A user-defined rule or guard may override ``state_dict`` but not ``validate_state``. The inherited
    ``validate_state`` does not apply to such a state, which is then validated by ``load_state_dict`` alone.
    """
    classes = type(part).__mro__
    writes = next((number for number, cls in enumerate(classes) if "state_dict" in vars(cls)), len(classes))
    validates = next((number for number, cls in enumerate(classes) if "validate_state" in vars(cls)), None)
    if validates is not None and validates <= writes:
        part.validate_state(state, path)  # type: ignore[attr-defined]


def state_error(path: str, expected: str, found: object) -> StateError:
    """Return the StateError for an invalid value ``found`` at ``path``."""
    return StateError(
        f"The state cannot be resumed: expected {path} to be {expected}, found {_summary(found)}. Restore the file "
        "from a backup, or restart without it."
    )


def require_mapping(
    path: str, value: object, keys: Collection[object] | None = None, *, others: bool = False
) -> Mapping[Any, Any]:
    """Return ``value`` if it is a mapping with exactly the given ``keys``; ``others`` allows additional keys."""
    if not isinstance(value, Mapping):
        raise state_error(path or "the state", "a dict", value)
    if keys is not None:
        for key in keys:
            if key not in value:
                raise state_error(f"{path}/{key}" if path else str(key), "present", None)
        for key in () if others else value:
            if key not in keys:
                raise state_error(f"{path}/{key}" if path else str(key), "absent", value[key])
    return value


def require_sequence(path: str, value: object, *, maximum: int | None = None) -> Sequence[Any]:
    """Return ``value`` if it is a list or tuple of at most ``maximum`` items."""
    if not isinstance(value, list | tuple):
        raise state_error(path, "a list", value)
    if maximum is not None and len(value) > maximum:
        raise state_error(path, f"a list of at most {maximum} items", f"one of {len(value)}")
    return value


def require_count(path: str, value: object, *, minimum: int = 0, maximum: int = MAX_COUNT) -> int:
    """Return ``value`` if it is an integer in ``[minimum, maximum]``."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise state_error(path, f"an integer from {minimum} to {maximum}", value)
    return value


def require_number(path: str, value: object, *, minimum: float = -math.inf) -> float:
    """Return ``value`` as a float if it is a finite number not less than ``minimum``."""
    number = isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
    if not number or not minimum <= value <= torch.finfo(torch.float64).max:  # type: ignore[operator]
        raise state_error(
            path, "a finite number" + ("" if minimum == -math.inf else f" of at least {minimum:g}"), value
        )
    return float(value)  # type: ignore[arg-type]


def require_bool(path: str, value: object) -> bool:
    """Return ``value`` if it is a bool."""
    if not isinstance(value, bool):
        raise state_error(path, "True or False", value)
    return value


def require_str(path: str, value: object) -> str:
    """Return ``value`` if it is a string."""
    if not isinstance(value, str):
        raise state_error(path, "a string", value)
    return value


def require_tensor(
    path: str, value: object, shape: Sequence[int | None], dtype: torch.dtype, *, minimum: float | None = None
) -> Tensor:
    """Return ``value`` if it is a dense tensor of ``shape`` and ``dtype`` with finite values.

    Args:
        path: path of the field.
        value: the value to validate.
        shape: expected size of each dimension; ``None`` for any.
        dtype: expected dtype.
        minimum: smallest value allowed.
    """
    sizes = tuple("any" if size is None else size for size in shape)
    expected = f"a tensor of shape ({', '.join(map(str, sizes))}) and {dtype}"
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        raise state_error(path, expected, value)
    fits = len(shape) == value.ndim and all(want in (None, has) for want, has in zip(shape, value.shape, strict=True))
    if not fits or value.dtype != dtype:
        raise state_error(path, expected, value)
    if (dtype.is_floating_point or dtype.is_complex) and not bool(value.isfinite().all()):
        raise state_error(path, "finite", "NaN or infinite values")
    if minimum is not None and value.numel() and not bool((value >= minimum).all()):
        raise state_error(path, f"at least {minimum:g} everywhere", float(value.min()))
    return value


def require_like(path: str, value: object, origin: Tensor) -> Tensor:
    """Return ``value`` if it has the shape and dtype of ``origin`` and is finite wherever it differs from ``origin``.

    A trained model may contain infinities, such as a mask of −∞, which adaptation does not change.
    """
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        raise state_error(path, f"a tensor of shape {tuple(origin.shape)} and {origin.dtype}", value)
    if value.shape != origin.shape or value.dtype != origin.dtype:
        raise state_error(path, f"a tensor of shape {tuple(origin.shape)} and {origin.dtype}", value)
    if (origin.is_floating_point() or origin.is_complex()) and not bool(value.isfinite().all()):
        here = origin.to(value.device)
        same = (value == here) | (value.isnan() & here.isnan())
        if not bool((value.isfinite() | same).all()):
            raise state_error(path, "finite wherever the initial model is finite", "NaN or infinite values")
    return value


def _summary(found: object) -> str:
    if found is None:
        return "nothing"
    if isinstance(found, Tensor):
        return f"a tensor of shape {tuple(found.shape)} and {found.dtype}"
    if isinstance(found, int) and found.bit_length() > 64:
        return f"an integer of {found.bit_length()} bits"  # Python limits the conversion of large integers to strings
    if isinstance(found, str | int | float):
        text = found if isinstance(found, str) else repr(found)
        return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}…"
    return f"a {type(found).__name__}"
