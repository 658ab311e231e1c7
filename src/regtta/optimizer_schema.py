"""Schema of an optimizer's state, obtained by one step of that optimizer on zeros, and validation against it."""

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

# Options that torch has added over time, so that files written with older versions may lack them.
ADDED_BY_TORCH = ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")
_SCHEDULED = ("lr", "betas", "momentum")  # options that torch's schedulers change
# Counts, and sums or means of squares, whose square roots are taken.
_NEVER_NEGATIVE = ("step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf")


def state_of_zeros(make: Callable[[Iterable[nn.Parameter]], Optimizer], zeros: Tensor) -> dict[str, Any]:
    """Return the state that an optimizer keeps for one parameter after one step with a zero gradient.

    Args:
        make: creates the optimizer for the given parameters.
        zeros: the initial parameter, which determines shape, dtype and device of the state.

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
    """Return a factory of optimizers of the torch class ``cls`` with the options of an existing parameter group."""

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        # Bypass the constructor: groups hold options that some constructors do not accept.
        optimizer = cls.__new__(cls)
        groups = [{**options, "params": list(parameters)}]
        optimizer.__setstate__({"defaults": dict(defaults), "state": defaultdict(dict), "param_groups": groups})
        return optimizer

    return make


def torch_class(optimizer: Optimizer) -> type[Optimizer] | None:
    """Return the ``torch.optim`` class of the optimizer or of its nearest such base class, or ``None``."""
    for cls in type(optimizer).__mro__:
        if cls.__module__.startswith("torch.optim") and issubclass(cls, Optimizer) and cls is not Optimizer:
            return cls
    return None


def require_value(path: str, key: str, value: object, example: object, shape: Sequence[int] | None) -> None:
    """Raise a StateError unless ``value`` has the type and dtype of ``example``.

    Args:
        path: path of the field in the state, for error messages.
        key: name of the field in the optimizer's state.
        value: the value to validate.
        example: the value of a valid state.
        shape: expected shape of a tensor; the shape of ``example`` if None.
    """
    if isinstance(example, Tensor):
        # Torch counts steps in the default dtype, which programs may change.
        doubled = key == "step" and isinstance(value, Tensor) and value.dtype == torch.float64
        dtype = torch.float64 if doubled else example.dtype
        least = 0.0 if key in _NEVER_NEGATIVE else None
        require_tensor(path, value, example.shape if shape is None else shape, dtype, least=least)
    elif isinstance(example, bool):
        require_flag(path, value)
    elif isinstance(example, int | float):
        require_number(path, value)


def require_options(path: str, group: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise a StateError unless the options of ``group`` equal ``own``, except those that torch's schedulers change."""
    for name, value in own.items():
        if name == "params" or (name in ADDED_BY_TORCH and name not in group):
            continue
        at = f"{path}/{name}"
        if name not in group:
            raise invalid(at, "present", None)
        if name == "capturable":  # determined by the execution
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
            raise invalid(path, "a float", value)


def _same_option(value: object, own: object) -> bool:
    if isinstance(own, Tensor):
        return isinstance(value, Tensor) and torch.equal(value.cpu(), own.cpu())
    if isinstance(own, list | tuple):
        alike = isinstance(value, list | tuple) and len(value) == len(own)
        return alike and all(map(_same_option, value, own))  # type: ignore[call-overload]
    return type(value) is type(own) and value == own
