"""What the state of an optimizer is made of, learned from the running code: one step of it on zeros."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regtta.state_validation import (
    invalid,
    require_flag,
    require_number,
    require_sequence,
    require_tensor,
)

# How a step is carried out; torch has added these over time, so that files of older versions lack some.
ADDED_BY_TORCH = ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")
_SCHEDULED = ("lr", "betas", "momentum")  # what torch's schedulers change
# Counts, and sums and means of squares, of which roots are taken.
_NEVER_NEGATIVE = ("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf")


def state_of_zeros(make: Callable[[Iterable[nn.Parameter]], Optimizer], zeros: Tensor) -> dict[str, Any]:
    """Return the state that an optimizer has of a parameter after one step by a gradient of zeros.

    Args:
        make: makes the optimizer.
        zeros: the parameter's values, of the shape, dtype and device that matter.

    Example:
        >>> state = state_of_zeros(lambda p: torch.optim.Adam(p, lr=0.1), torch.zeros(3))
        >>> sorted(state), state["exp_avg"].shape
        (['exp_avg', 'exp_avg_sq', 'step'], torch.Size([3]))
    """
    twin = nn.Parameter(zeros)
    twin.grad = torch.zeros_like(twin)
    optimizer = make([twin])
    optimizer.step()
    return dict(optimizer.state[twin])


def copy_for(
    cls: type[Optimizer], options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """Return what makes an optimizer of torch's own class ``cls`` with the options of a running one's group."""

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        # Not through the constructor: groups hold options that some constructors do not take.
        optimizer = cls.__new__(cls)
        groups = [{**options, "params": list(parameters)}]
        optimizer.__setstate__({"defaults": dict(defaults), "state": defaultdict(dict), "param_groups": groups})
        return optimizer

    return make


def torch_class(optimizer: Optimizer) -> type[Optimizer] | None:
    """Return the class of ``torch.optim`` that the optimizer is of, or is derived from; ``None`` for any other."""
    for cls in type(optimizer).__mro__:
        if cls.__module__.startswith("torch.optim") and issubclass(cls, Optimizer) and cls is not Optimizer:
            return cls
    return None


def require_value(path: str, key: str, value: object, example: object, shape: Sequence[int] | None) -> None:
    """Raise unless ``value`` is of the kind of ``example``, a tensor of ``shape`` where that has one for itself."""
    if isinstance(example, Tensor):
        # Torch counts steps in the default dtype, which is the program's.
        doubled = key == "step" and isinstance(value, Tensor) and value.dtype == torch.float64
        dtype = torch.float64 if doubled else example.dtype
        least = 0.0 if key in _NEVER_NEGATIVE else None
        require_tensor(path, value, example.shape if shape is None else shape, dtype, least=least)
    elif isinstance(example, bool):
        require_flag(path, value)
    elif isinstance(example, int | float):
        require_number(path, value)


def require_options(path: str, group: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise unless the options of a group are the running ones, but for those that torch's schedulers change."""
    for name, value in own.items():
        if name == "params" or (name in ADDED_BY_TORCH and name not in group):
            continue
        at = f"{path}/{name}"
        if name not in group:
            raise invalid(at, "there", None)
        if name == "capturable":  # the execution's to decide
            require_flag(at, group[name])
        elif name in _SCHEDULED and not isinstance(value, bool):
            _require_scheduled(at, group[name], value)
        elif not _same_option(group[name], value):
            raise invalid(at, f"{value}", group[name])


def _require_scheduled(path: str, value: object, own: object) -> None:
    if isinstance(own, Tensor):
        require_tensor(path, value, own.shape, own.dtype, least=0.0)
    elif isinstance(own, list | tuple):
        items = require_sequence(path, value)
        if len(items) != len(own):
            raise invalid(path, f"{len(own)} items", f"{len(items)}")
        for number, (item, mine) in enumerate(zip(items, own, strict=True)):
            _require_scheduled(f"{path}/{number}", item, mine)
    else:
        require_number(path, value, least=0.0)
        if isinstance(own, float) and not isinstance(value, float):
            raise invalid(path, "a number with a fraction", value)


def _same_option(value: object, own: object) -> bool:
    if isinstance(own, Tensor):
        return isinstance(value, Tensor) and torch.equal(value.cpu(), own.cpu())
    if isinstance(own, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(own)
        return alike and all(map(_same_option, value, own))  # type: ignore[call-overload]
    return type(value) is type(own) and value == own
