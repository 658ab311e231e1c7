"""Assignment of weights that a module computes from other parameters, as with weight normalisation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from regtta.errors import ModelError


@torch.no_grad()
def assign_tensor(module: nn.Module, name: str, value: Tensor) -> None:
    """Set the tensor ``name`` of ``module`` to ``value`` in place, even if it is computed from other parameters.

    Weight normalisation (``torch.nn.utils.parametrizations`` or the older ``torch.nn.utils.weight_norm``) computes a
    weight from its norm and direction in every forward pass. Writing to the weight would have no effect, so norm and
    direction are set instead.

    Raises:
        ModelError: the computation of the tensor cannot be inverted.

    Example:
        >>> head = torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
        >>> assign_tensor(head, "weight", torch.tensor([[3.0, 4.0]]))
        >>> head.weight.tolist(), head.parametrizations.weight.original0.item()
        ([[3.0, 4.0]], 5.0)
    """
    value = value.to(getattr(module, name))
    # Copied in place, since torch's own assignment to a parametrized tensor would reallocate its parameters.
    for parameter, part in _underlying(module, name, value):
        parameter.copy_(part)
    recompute_weights(module)


@torch.no_grad()
def check_assignable(module: nn.Module, name: str) -> None:
    """Raise a :class:`ModelError` unless :func:`assign_tensor` can set the tensor ``name`` to any value."""
    if not parametrize.is_parametrized(module, name):
        _underlying(module, name, getattr(module, name))
        return
    now = getattr(module, name)
    for value in (now, now.flip(-1) + 1):
        parts = [part for _, part in _underlying(module, name, value)]
        first, *others = _parametrizations(module, name)
        computed = first(*parts)
        for further in others:
            computed = further(computed)
        tolerance = max(1e-3, 8 * torch.finfo(value.dtype).eps)
        if computed.shape != value.shape or bool((computed - value).abs().max() > tolerance * value.abs().max()):
            raise _not_assignable(module, name, "which gives another value than the one that was set")


@torch.no_grad()
def recompute_weights(module: nn.Module) -> None:
    """Recompute weights of ``torch.nn.utils.weight_norm``, which would else happen in the next forward pass only."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            setattr(module, hook.name, hook.compute_weight(module))


def _underlying(module: nn.Module, name: str, value: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the parameters from which ``name`` is computed, each with the value that makes ``name`` ``value``."""
    if name in module._parameters:
        return [(getattr(module, name), value)]
    if parametrize.is_parametrized(module, name):
        parts: Tensor | Sequence[Tensor] = value
        try:
            for parametrization in reversed(_parametrizations(module, name)):
                parts = parametrization.right_inverse(parts)
        except Exception as error:  # a user-defined parametrization may raise anything
            raise _not_assignable(module, name, f"which cannot be inverted ({type(error).__name__})") from error
        stored = _parametrizations(module, name)
        if isinstance(parts, Tensor):
            return [(stored.original, parts)]
        return [(getattr(stored, f"original{index}"), part) for index, part in enumerate(parts)]
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            norm = torch.norm_except_dim(value, 2, hook.dim)
            return [(getattr(module, f"{name}_g"), norm), (getattr(module, f"{name}_v"), value)]
    raise _not_assignable(module, name, "in a way that regtta does not support")


def _parametrizations(module: nn.Module, name: str) -> Any:
    """Return the ParametrizationList of a tensor: its modules in order, with the original tensors."""
    parametrizations: Any = module.parametrizations
    return parametrizations[name]


def _not_assignable(module: nn.Module, name: str, why: str) -> ModelError:
    by = ""
    if parametrize.is_parametrized(module, name):
        by = f" by {', '.join(type(part).__name__ for part in _parametrizations(module, name))}"
    own = [key for key, _ in module.named_parameters()]
    return ModelError(
        f"Expected a head whose {name} can be replaced; this one's is computed from {own}{by}, {why}. Make it a plain "
        f"parameter before adapting (torch.nn.utils.parametrize.remove_parametrizations(head, {name!r}), or the "
        "corresponding remove function), or use a method that does not change the head, such as ssa."
    )
