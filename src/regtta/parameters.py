"""What of a model may move while it adapts, and how to put it back.

Three things can move: parameters chosen by the method, the running statistics of BatchNorm, and the
head. Everything else is frozen, which also saves a third of the backward pass.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from regtta.errors import ModelError

Trainable = Literal["affine", "extractor", "all"]

TRAINABLE: tuple[str, ...] = get_args(Trainable)

_NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def private_copy(model: nn.Module) -> nn.Module:
    """A deep copy of ``model``, or the error that says why there can be none."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"Expected a torch.nn.Module, found {type(model).__name__}.")
    try:
        return copy.deepcopy(model)
    except Exception as error:  # deepcopy passes on whatever a member raises
        raise ModelError(
            f"The model cannot be copied ({type(error).__name__}: {error}). regtta works on a copy so "
            "that yours stays as it is: remove what copy.deepcopy rejects (open files, locks, "
            "tensors that are no leaves)."
        ) from error


def trainable_parameters(model: nn.Module, head: nn.Linear | None, which: Trainable | None) -> dict[str, nn.Parameter]:
    """The parameters that may move, by name.

    * ``"affine"``: scale and shift of BatchNorm, LayerNorm, GroupNorm, InstanceNorm and RMSNorm.
    * ``"extractor"``: everything but the head.
    * ``"all"``: everything.
    * ``None``: nothing.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        >>> list(trainable_parameters(net, net[2], "affine"))
        ['1.weight', '1.bias']
        >>> list(trainable_parameters(net, net[2], "extractor"))
        ['0.weight', '0.bias', '1.weight', '1.bias']
    """
    if which is None:
        return {}
    at_head = set(map(id, head.parameters())) if head is not None else set()
    chosen = _affine(model) if which == "affine" else None
    picked = {
        name: parameter
        for name, parameter in model.named_parameters()
        if (chosen is None or id(parameter) in chosen) and (which == "all" or id(parameter) not in at_head)
    }
    if not picked:
        raise ModelError(_nothing_to_train(model, which))
    return picked


def freeze_all_but(model: nn.Module, moving: Iterable[nn.Parameter]) -> None:
    """Let only ``moving`` need gradients."""
    kept = set(map(id, moving))
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in kept)
        parameter.grad = None


class Snapshot:
    """Copies of some tensors, to be put back bit for bit.

    Example:
        >>> x = torch.ones(2)
        >>> before = Snapshot([x])
        >>> _ = x.zero_()
        >>> before.restore(); x
        tensor([1., 1.])
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._live = [tensor.detach() for tensor in tensors]
        self._kept = [tensor.clone() for tensor in self._live]

    def update(self) -> None:
        """Remember what the tensors are now."""
        _copy(self._kept, self._live)

    def restore(self) -> None:
        """Make the tensors what they were when last remembered."""
        _copy(self._live, self._kept)


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    if into:
        torch._foreach_copy_(into, values)


# --- tensors that a module computes from others -----------------------------------------------------


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


def _affine(model: nn.Module) -> set[int]:
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, _NORMS)
        for parameter in module.parameters(recurse=False)
    }


def _nothing_to_train(model: nn.Module, which: Trainable) -> str:
    name = type(model).__name__
    if which != "affine":
        return f"{name} has no parameters that may move (trainable={which!r})."
    return (
        f"{name} has no normalisation layer with affine parameters (BatchNorm, LayerNorm, GroupNorm, "
        'InstanceNorm, RMSNorm), and trainable="affine" moves those alone. Pass '
        'trainable="extractor" to move all of the feature extractor.'
    )
