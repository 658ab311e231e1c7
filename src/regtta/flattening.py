"""Many small tensors laid end to end, so that one operation serves all of them.

A model has dozens of scales, shifts and running statistics of a few hundred numbers each. Copying, comparing or
stepping them one by one costs far more in calls than in arithmetic.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGNED = 16  # numbers


@dataclass(frozen=True)
class Flat:
    """Tensors with their values inside one.

    Attributes:
        whole: (N,) all values, with zeros between them; what is written here is written into the parts.
        parts: the tensors, each still itself.
    """

    whole: Tensor
    parts: tuple[Tensor, ...]

    def first(self, tensors: Collection[int]) -> "Flat | None":
        """The beginning of it that holds the parts whose ids are in ``tensors``, where these come first."""
        parts = tuple(itertools.takewhile(lambda part: id(part) in tensors, self.parts))
        if not parts or len(parts) == len(self.parts):
            return self if parts else None
        return Flat(self.whole[: sum(map(_room, parts))], parts)

    def like(self, whole: Tensor) -> list[Tensor]:
        """Views of another ``whole``, laid out as the parts are in this one."""
        views, start = [], 0
        for part in self.parts:
            views.append(whole.as_strided(part.shape, part.stride(), start))
            start += _room(part)
        return views


def lay_together(tensors: Iterable[Tensor], apart: Iterable[Tensor] = ()) -> list[Flat]:
    """Move the values of ``tensors``, in their order, into as few flat ones as there are dtypes and devices.

    Each stays the object that it is, of the same shape and strides; only where its values lie changes. What cannot be
    moved so, or is named in ``apart``, makes a group of its own and stays where it is.

    Example:
        >>> a, b = torch.ones(2, 2), torch.zeros(3)
        >>> [flat] = lay_together([a, b])
        >>> _ = flat.whole.add_(1)
        >>> a, b
        (tensor([[2., 2.],
                [2., 2.]]), tensor([1., 1., 1.]))
    """
    left = set(map(id, apart))
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    alone: list[Flat] = []
    for tensor in tensors:
        if id(tensor) not in left and _movable(tensor):
            groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        else:
            alone.append(Flat(tensor.detach(), (tensor,)))
    return [_moved(group) for group in groups.values()] + alone


def bound_in_place(model: nn.Module) -> list[Tensor]:
    """Parameters and buffers that must stay where they are.

    Those of recurrent layers, whose libraries want them side by side, and those that share their memory.
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
    """Numbers that a tensor takes up: each begins where kernels that load many at once want it to."""
    return -(-tensor.numel() // ALIGNED) * ALIGNED


def _movable(tensor: Tensor) -> bool:
    ordinary = _plain(tensor) and not tensor.is_quantized and not tensor.is_inference()
    return ordinary and tensor.device.type != "meta" and tensor.numel() > 0 and _dense(tensor)


def _dense(tensor: Tensor) -> bool:
    """Whether its values fill a stretch of memory, in whatever order."""
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
