"""Checks on saved states, made before anything is loaded from them.

A state comes from a file, and a file may be damaged or hostile: a tensor of another shape corrupts memory in kernels
that trust it, and a value of another type fails many batches later. Every function here takes the path of a field, such
as ``learner/batch_norm/updates``, and raises a :class:`regtta.errors.StateError` that names it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regtta.errors import StateError

# Beyond it, a float cannot count any more.
MOST_COUNTED = 2**53
_LONGEST_SHOWN = 80


def validate_part(part: object, state: object, path: str) -> None:
    """Validate ``state`` by ``part.validate_state``, where that speaks for what the part writes.

    A subclass that overrides ``state_dict`` alone writes a state that the inherited ``validate_state`` knows nothing
    of; such states, those of users' own rules and guards, are left to their ``load_state_dict``.
    """
    classes = type(part).__mro__
    writes = next((number for number, cls in enumerate(classes) if "state_dict" in vars(cls)), len(classes))
    validates = next((number for number, cls in enumerate(classes) if "validate_state" in vars(cls)), None)
    if validates is not None and validates <= writes:
        part.validate_state(state, path)  # type: ignore[attr-defined]


def invalid(path: str, expected: str, found: object) -> StateError:
    """Return the error for the field at ``path``."""
    return StateError(
        f"The state cannot be resumed: expected {path} to be {expected}, found {_in_words(found)}. Put back a copy of "
        "the file it comes from, or begin anew."
    )


def require_mapping(
    path: str, value: object, keys: Collection[object] | None = None, *, others: bool = False
) -> Mapping[Any, Any]:
    """Return ``value``, a mapping that has ``keys`` where these are given, and no others unless they are allowed."""
    if not isinstance(value, Mapping):
        raise invalid(path or "it", "a dict", value)
    if keys is not None:
        for key in keys:
            if key not in value:
                raise invalid(f"{path}/{key}" if path else str(key), "there", None)
        for key in () if others else value:
            if key not in keys:
                raise invalid(f"{path}/{key}" if path else str(key), "absent", value[key])
    return value


def require_sequence(path: str, value: object, *, most: int | None = None) -> Sequence[Any]:
    """Return ``value``, a list or tuple of at most ``most`` items."""
    if not isinstance(value, list | tuple):
        raise invalid(path, "a list", value)
    if most is not None and len(value) > most:
        raise invalid(path, f"a list of at most {most} items", f"one of {len(value)}")
    return value


def require_count(path: str, value: object, *, least: int = 0, most: int = MOST_COUNTED) -> int:
    """Return ``value``, a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(path, f"a whole number from {least} to {most}", value)
    return value


def require_number(path: str, value: object, *, least: float = -math.inf) -> float:
    """Return ``value``, a finite number of at least ``least``."""
    number = isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
    if not number or not least <= value <= torch.finfo(torch.float64).max:  # type: ignore[operator]
        raise invalid(path, "a finite number" + ("" if least == -math.inf else f" of at least {least:g}"), value)
    return float(value)  # type: ignore[arg-type]


def require_flag(path: str, value: object) -> bool:
    """Return ``value``, true or false."""
    if not isinstance(value, bool):
        raise invalid(path, "true or false", value)
    return value


def require_text(path: str, value: object) -> str:
    """Return ``value``, a text."""
    if not isinstance(value, str):
        raise invalid(path, "a text", value)
    return value


def require_tensor(
    path: str, value: object, shape: Sequence[int | None], dtype: torch.dtype, *, least: float | None = None
) -> Tensor:
    """Return ``value``, a dense tensor of ``shape`` and ``dtype`` whose values are finite.

    Args:
        path: of the field.
        value: what the state holds there.
        shape: the size of each dimension; ``None`` for any.
        dtype: of the values.
        least: the smallest value allowed.
    """
    sizes = tuple("any" if size is None else size for size in shape)
    expected = f"a tensor of shape ({', '.join(map(str, sizes))}) and {dtype}"
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        raise invalid(path, expected, value)
    fits = len(shape) == value.ndim and all(size in (None, has) for size, has in zip(shape, value.shape, strict=True))
    if not fits or value.dtype != dtype:
        raise invalid(path, expected, value)
    if (dtype.is_floating_point or dtype.is_complex) and not bool(value.isfinite().all()):
        raise invalid(path, "finite", "NaN or an infinity in it")
    if least is not None and value.numel() and not bool((value >= least).all()):
        raise invalid(path, f"at least {least:g} everywhere", float(value.min()))
    return value


def require_like(path: str, value: object, origin: Tensor) -> Tensor:
    """Return ``value``, a tensor of the shape and dtype of ``origin``, not finite only where it equals ``origin``.

    A trained model may hold infinities, such as a mask of −∞; they stay what they are.
    """
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        raise invalid(path, f"a tensor of shape {tuple(origin.shape)} and {origin.dtype}", value)
    if value.shape != origin.shape or value.dtype != origin.dtype:
        raise invalid(path, f"a tensor of shape {tuple(origin.shape)} and {origin.dtype}", value)
    if (origin.is_floating_point() or origin.is_complex()) and not bool(value.isfinite().all()):
        here = origin.to(value.device)
        same = (value == here) | (value.isnan() & here.isnan())
        if not bool((value.isfinite() | same).all()):
            raise invalid(path, "finite where the model was when the stream began", "NaN or an infinity in it")
    return value


def _in_words(found: object) -> str:
    if found is None:
        return "nothing"
    if isinstance(found, Tensor):
        return f"a tensor of shape {tuple(found.shape)} and {found.dtype}"
    if isinstance(found, int) and found.bit_length() > 64:
        return f"a number of {found.bit_length()} bits"  # Python refuses to write longer ones out
    if isinstance(found, str | int | float):
        text = found if isinstance(found, str) else repr(found)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return f"a {type(found).__name__}"
