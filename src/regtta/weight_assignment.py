"""Setting weights that a module computes from other parameters, as weight normalisation does."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from regtta.errors import ModelError


@torch.no_grad()
def assign(module: nn.Module, name: str, value: Tensor) -> None:
    """Set the tensor ``name`` of ``module`` to ``value`` in place, also where it is computed from other parameters.

    Weight normalisation, by ``torch.nn.utils.parametrizations`` or of the older kind, computes a weight from its norm
    and its direction at every pass: writing to the weight itself would change nothing, so these two are set.

    Raises:
        ModelError: the tensor is computed in a way that cannot be turned round.

    Example:
        >>> head = torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
        >>> assign(head, "weight", torch.tensor([[3.0, 4.0]]))
        >>> head.weight.tolist(), head.parametrizations.weight.original0.item()
        ([[3.0, 4.0]], 5.0)
    """
    value = value.to(getattr(module, name))
    # Never by torch's own assignment, which would move the parameters to another place in memory.
    for parameter, part in _behind(module, name, value):
        parameter.copy_(part)
    refresh(module)


@torch.no_grad()
def check_assignable(module: nn.Module, name: str) -> None:
    """Raise a :class:`ModelError` unless :func:`assign` can set the tensor ``name`` of ``module`` to any value."""
    if not parametrize.is_parametrized(module, name):
        _behind(module, name, getattr(module, name))
        return
    now = getattr(module, name)
    for value in (now, now.flip(-1) + 1):
        parts = [part for _, part in _behind(module, name, value)]
        first, *others = _parametrizations(module, name)
        computed = first(*parts)
        for further in others:
            computed = further(computed)
        tolerance = max(1e-3, 8 * torch.finfo(value.dtype).eps)
        if computed.shape != value.shape or bool((computed - value).abs().max() > tolerance * value.abs().max()):
            raise _not_assignable(module, name, "which gives another value than the one that was set")


@torch.no_grad()
def refresh(module: nn.Module) -> None:
    """Compute what the older kind of weight normalisation would only compute at the next pass of ``module``."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            setattr(module, hook.name, hook.compute_weight(module))


def _behind(module: nn.Module, name: str, value: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The parameters that the tensor ``name`` is computed from, each with what it must be for it to be ``value``."""
    if name in module._parameters:
        return [(getattr(module, name), value)]
    if parametrize.is_parametrized(module, name):
        parts: Tensor | Sequence[Tensor] = value
        try:
            for parametrization in reversed(_parametrizations(module, name)):
                parts = parametrization.right_inverse(parts)
        except Exception as error:  # a parametrization may be anybody's
            raise _not_assignable(module, name, f"which cannot be inverted ({type(error).__name__})") from error
        stored = _parametrizations(module, name)
        if isinstance(parts, Tensor):
            return [(stored.original, parts)]
        return [(getattr(stored, f"original{index}"), part) for index, part in enumerate(parts)]
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            norm = torch.norm_except_dim(value, 2, hook.dim)
            return [(getattr(module, f"{name}_g"), norm), (getattr(module, f"{name}_v"), value)]
    raise _not_assignable(module, name, "in a way that regtta does not know")


def _parametrizations(module: nn.Module, name: str) -> Any:
    """The ParametrizationList of a tensor: its modules in order, with the tensors that it is computed from."""
    every: Any = module.parametrizations
    return every[name]


def _not_assignable(module: nn.Module, name: str, why: str) -> ModelError:
    by = ""
    if parametrize.is_parametrized(module, name):
        by = f" by {', '.join(type(part).__name__ for part in _parametrizations(module, name))}"
    own = [key for key, _ in module.named_parameters()]
    return ModelError(
        f"Expected a head whose {name} can be replaced; this one's is computed from {own}{by}, {why}. Make it a plain "
        f"parameter before adapting (torch.nn.utils.parametrize.remove_parametrizations(head, {name!r}), or the remove "
        "function of what you applied), or take a method that leaves the head as it is, such as ssa."
    )
