"""Flat storage for many small tensors, so that a single kernel processes all of them.

A model has dozens of scales, shifts and running statistics of a few hundred values each. Copying, comparing or updating
them one by one costs far more in kernel launches than in arithmetic.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGNED = 16  # elements


@dataclass(frozen=True)
class Flat:
    """Tensors whose storage is one flat tensor.

    Attributes:
        whole: ``(N,)``, the values of all parts, padded with zeros for alignment; writing to it updates the parts.
        parts: the original tensor objects, whose data are views of ``whole``.
    """

    whole: Tensor
    parts: tuple[Tensor, ...]

    def first(self, tensors: Collection[int]) -> "Flat | None":
        """Return the leading parts whose ids are in ``tensors``, or None if the first part is not among them."""
        parts = tuple(itertools.takewhile(lambda part: id(part) in tensors, self.parts))
        if not parts or len(parts) == len(self.parts):
            return self if parts else None
        return Flat(self.whole[: sum(map(_room, parts))], parts)

    def like(self, whole: Tensor) -> list[Tensor]:
        """Return views of another flat tensor ``whole``, with the shapes, strides and offsets of the parts."""
        views, start = [], 0
        for part in self.parts:
            views.append(whole.as_strided(part.shape, part.stride(), start))
            start += _room(part)
        return views


def flatten_storage(tensors: Iterable[Tensor], apart: Iterable[Tensor] = ()) -> list[Flat]:
    """Move the storage of ``tensors``, in order, into one flat tensor per dtype and device.

    Every tensor remains the same object with the same shape and strides; only its storage changes. A tensor that cannot
    be moved, or is in ``apart``, keeps its storage and becomes a group of its own.

    Args:
        tensors: the tensors to flatten.
        apart: tensors that must keep their storage.

    Example:
        >>> a, b = torch.ones(2, 2), torch.zeros(3)
        >>> [flat] = flatten_storage([a, b])
        >>> _ = flat.whole.add_(1)
        >>> a, b
        (tensor([[2., 2.],
                [2., 2.]]), tensor([1., 1., 1.]))
    """
    fixed = set(map(id, apart))
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    alone: list[Flat] = []
    for tensor in tensors:
        if id(tensor) not in fixed and _movable(tensor):
            groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        else:
            alone.append(Flat(tensor.detach(), (tensor,)))
    return [_moved(group) for group in groups.values()] + alone


def unmovable_tensors(model: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers whose storage must not be moved.

    These are the parameters of recurrent layers, which cuDNN requires to be contiguous with each other, and tensors
    that share storage.
    """
    recurrent = [p for module in model.modules() if isinstance(module, nn.RNNBase) for p in module.parameters()]
    everything = [*model.parameters(), *model.buffers()]
    owners = Counter(_memory(tensor) for tensor in everything)
    return recurrent + [tensor for tensor in everything if owners[_memory(tensor)] > 1]


def _moved(tensors: Sequence[Tensor]) -> Flat:
    whole = tensors[0].new_zeros(sum(map(_room, tensors)), requires_grad=False)
    flat = Flat(whole, tuple(tensors))
    for tensor, view in zip(tensors, flat.like(whole), strict=True):
        view.copy_(tensor.detach())
        tensor.data = view
    return flat


def _room(tensor: Tensor) -> int:
    """Return the number of elements reserved for a tensor, rounded up so that vectorized loads are aligned."""
    return -(-tensor.numel() // ALIGNED) * ALIGNED


def _movable(tensor: Tensor) -> bool:
    ordinary = _plain(tensor) and not tensor.is_quantized and not tensor.is_inference()
    return ordinary and tensor.device.type != "meta" and tensor.numel() > 0 and _dense(tensor)


def _dense(tensor: Tensor) -> bool:
    """Return True if the tensor is non-overlapping and dense, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if _plain(tensor) else id(tensor)


def _plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
