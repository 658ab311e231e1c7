"""Selection of the trainable parameters of a model, and snapshots of its tensors to restore them.

Adaptation can change the parameters selected by the method, the running statistics of BatchNorm and the head.
Everything else is frozen, which also saves a third of the backward pass.
"""

import copy
import itertools
import logging
import re
from collections.abc import Callable, Iterable
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from regtta.errors import ModelError
from regtta.models.model_checks import check_model

Trainable = Literal["affine", "bias", "extractor", "all"]

TRAINABLE: tuple[str, ...] = get_args(Trainable)

logger = logging.getLogger(__name__)

_NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

# Normalisation layers of other libraries, such as timm's RmsNorm or T5LayerNorm, are recognised by the names of their
# class and parameters: "LayerNormalization" matches, "NormalizedLinear" does not.
_NORM_CLASS = re.compile(r"Norm(?!al)|Normali[sz]ation")
_SCALES_AND_SHIFTS = frozenset({"weight", "bias", "gamma", "beta", "scale", "shift", "offset", "g", "b"})
_NEVER_NORMS = (nn.Linear, nn.Bilinear, _ConvNd, nn.Embedding, nn.EmbeddingBag)

# "bias", "in_proj_bias" and, in recurrent layers, "bias_ih_l0_reverse"; not "relative_position_bias_table".
_BIAS = re.compile(r"(\w+_)?bias(_(ih|hh)(_l\d+(_reverse)?)?)?")


def private_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy of ``model``; raise a ModelError if it is not a module or cannot be copied."""
    check_model(model)
    # torch.nn.utils.weight_norm keeps the computed weight as an attribute, which deepcopy rejects unless it is a leaf.
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    try:
        copied = copy.deepcopy(model, computed)
    except Exception as error:  # deepcopy propagates any error of a member
        raise ModelError(
            f"The model cannot be copied ({type(error).__name__}: {error}). regtta works on a copy so "
            "that yours is not modified: remove what copy.deepcopy rejects (open files, locks, "
            "non-leaf tensors)."
        ) from error
    for module in copied.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN needs the weights in one block of memory, which deepcopy splits
    return copied


def model_device(model: nn.Module) -> torch.device:
    """Return the device of the model's first parameter (or buffer); the CPU for a model without any."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


def trainable_parameters(model: nn.Module, head: nn.Module | None, which: Trainable | None) -> dict[str, nn.Parameter]:
    """Return the trainable parameters by name; raise a ModelError if there are none.

    * ``"affine"``: scale and shift of BatchNorm, LayerNorm, GroupNorm, InstanceNorm and RMSNorm, and of normalisation
      layers of other libraries: classes called ``...Norm...`` whose parameters have one value per channel. In a model
      without any of these, the same as ``"bias"``, with a warning in the log.
    * ``"bias"``: the biases of all modules except the head's, by their names: ``bias``, ``in_proj_bias``,
      ``bias_ih_l0``, ``bias_hh_l0_reverse``.
    * ``"extractor"``: all parameters except the head's.
    * ``"all"``: all parameters.
    * ``None``: no parameters.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        >>> list(trainable_parameters(net, net[2], "affine"))
        ['1.weight', '1.bias']
        >>> list(trainable_parameters(net, net[2], "bias"))
        ['0.bias', '1.bias']
        >>> list(trainable_parameters(net, net[2], "extractor"))
        ['0.weight', '0.bias', '1.weight', '1.bias']
    """
    if which is None:
        return {}
    excluded = set(map(id, head.parameters())) if head is not None and which != "all" else set()
    chosen = _SELECTIONS[which](model)
    falls_back = which == "affine" and not chosen
    if falls_back:
        chosen = _biases(model)
    picked = {
        name: parameter
        for name, parameter in model.named_parameters()
        if id(parameter) in chosen and id(parameter) not in excluded
    }
    if not picked:
        raise ModelError(_nothing_to_train(model, which))
    if falls_back:
        logger.warning(
            '%s has no normalisation layer with affine parameters, which trainable="affine" updates: its biases are '
            'updated instead, %s values in %s tensors. Pass trainable="bias" to choose this explicitly, or '
            'trainable="extractor" to update everything except the head.',
            type(model).__name__,
            f"{sum(parameter.numel() for parameter in picked.values()):,}",
            len(picked),
        )
    return picked


def freeze_all_but(model: nn.Module, moving: Iterable[nn.Parameter]) -> None:
    """Require gradients for the parameters in ``moving`` only, and clear all gradients."""
    kept = set(map(id, moving))
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in kept)
        parameter.grad = None


class BufferSlots:
    """Registered buffers of a model, restored after a forward pass that assigns new tensors to them.

    Snapshots, rollback and reset work on the tensors registered when the adapter was created. A model that runs
    ``self.ema = 0.9 * self.ema + 0.1 * x.mean(0)`` replaces them by new tensors; after each pass the registered tensor
    is put back, with or without the new values.

    Args:
        model: the adapter's copy of the model.

    Attributes:
        entries: ``(buffers, name, registered tensor, full name)`` of each buffer.
        reassigned: True if a pass has assigned a buffer so far.

    Example:
        >>> layer = nn.BatchNorm1d(2)
        >>> slots, registered = BufferSlots(layer), layer.running_mean
        >>> layer.running_mean = torch.ones(2)
        >>> slots.restore_with_values(); layer.running_mean is registered, registered
        (True, tensor([1., 1.]))
    """

    def __init__(self, model: nn.Module) -> None:
        self.entries = [
            (module._buffers, name, value, f"{place}.{name}".lstrip("."))
            for place, module in model.named_modules()
            for name, value in module._buffers.items()
        ]
        self.reassigned = False
        self._warned: set[str] = set()

    def restore(self) -> None:
        """Put the registered tensors back with their old values, after a pass that must not change state."""
        for buffers, name, registered, _ in self.entries:
            if buffers.get(name) is not registered:
                self.reassigned = True
                buffers[name] = registered

    def restore_with_values(self) -> None:
        """Put the registered tensors back with the values assigned in the pass, after an adaptation pass."""
        for buffers, name, registered, place in self.entries:
            assigned = buffers.get(name)
            if assigned is not registered:
                self._take(registered, assigned, place)
                buffers[name] = registered

    @torch.no_grad()
    def _take(self, registered: Tensor | None, assigned: Tensor | None, place: str) -> None:
        self.reassigned = True
        if isinstance(registered, Tensor) and isinstance(assigned, Tensor) and _same_kind(registered, assigned):
            registered.copy_(assigned.detach())
        elif place not in self._warned:
            self._warned.add(place)
            logger.warning("forward() changes the shape or dtype of the buffer %s: its old value is restored.", place)


def _same_kind(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def normalisation_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the normalisation layers of ``model`` by name: those of torch, and those recognised by their class name.

    Example:
        >>> list(normalisation_layers(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LayerNorm(3))))
        ['1', '2']
    """
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _NORMS) or (any(True for _ in module.parameters()) and _is_norm_by_name(module))
    }


def _affine(model: nn.Module) -> set[int]:
    return {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(module, _NORMS) or (name in _SCALES_AND_SHIFTS and _is_norm_by_name(module))
    }


def _biases(model: nn.Module) -> set[int]:
    return {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if _BIAS.fullmatch(name)
    }


def _every(model: nn.Module) -> set[int]:
    return set(map(id, model.parameters()))


_SELECTIONS: dict[Trainable, Callable[[nn.Module], set[int]]] = {
    "affine": _affine,
    "bias": _biases,
    "extractor": _every,
    "all": _every,
}


def _is_norm_by_name(module: nn.Module) -> bool:
    """Return True if the class name and the parameters of a module are those of a normalisation layer.

    All parameters must belong to the module itself, since a block such as ``PreNorm`` contains other layers, and hold
    one value per channel.
    """
    if isinstance(module, _NEVER_NORMS) or not any(_NORM_CLASS.search(cls.__name__) for cls in type(module).__mro__):
        return False
    own = list(module.parameters(recurse=False))
    return len(own) == len(list(module.parameters())) and all(_is_per_channel(p) for p in own)


def _is_per_channel(parameter: Tensor) -> bool:
    """Return True for shapes such as (), (C,), (C, 1, 1) and (1, C, 1, 1), but not for matrices."""
    return parameter.ndim < 2 or (parameter.ndim > 2 and sum(size > 1 for size in parameter.shape) <= 1)


def _nothing_to_train(model: nn.Module, which: Trainable) -> str:
    name = type(model).__name__
    if which in ("extractor", "all"):
        return f"{name} has no trainable parameters (trainable={which!r})."
    found = "no bias" if which == "bias" else "neither a normalisation layer with affine parameters nor a bias"
    return (
        f'Expected parameters before the head of {name} that trainable="{which}" updates, found {found}. Pass '
        'trainable="extractor" to update everything except the head.'
    )
