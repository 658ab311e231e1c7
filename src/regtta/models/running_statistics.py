"""Running statistics of BatchNorm whose weights change from step to step, by the same operations at every step.

The weight of a batch in the running statistics is a Python number in torch: a layer's momentum. A CUDA graph would
repeat the number it was captured with, and a compiled model would be compiled again for every other one. Here the
layers run with momentum 1, which replaces their running statistics by those of the batch, and these are averaged with
the previous ones after the backward pass, with weights that are read from tensors.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm


@dataclass
class _Group:
    """Running statistics with one weight, on one device and of one dtype."""

    weight: Tensor
    complement: Tensor
    running: list[Tensor] = field(default_factory=list)
    previous: list[Tensor] = field(default_factory=list)


class RunningStatistics:
    """Running statistics of BatchNorm layers, averaged after each pass: ``w·batch + (1 − w)·previous``.

    Args:
        layers: the BatchNorm layers; those without running statistics are ignored.
        kinds: for each layer the key of its weight, such as its own momentum.

    Example:
        >>> layer = torch.nn.BatchNorm1d(1, momentum=1.0)
        >>> statistics = RunningStatistics([layer], ["all"])
        >>> statistics.fill({"all": 0.25})
        >>> statistics.save()
        >>> _ = layer(torch.tensor([[4.0], [8.0]]))
        >>> statistics.average(); layer.running_mean
        tensor([1.5000])
    """

    def __init__(self, layers: Sequence[_BatchNorm], kinds: Sequence[Hashable]) -> None:
        self._groups: dict[tuple[Hashable, torch.dtype, torch.device], _Group] = {}
        self._layers = [layer for layer in layers if layer.running_mean is not None]
        for layer, kind in zip(layers, kinds, strict=True):
            for running in (layer.running_mean, layer.running_var):
                if running is not None:
                    self._add(kind, running)
        self._counts: list[int] = []

    def _add(self, kind: Hashable, running: Tensor) -> None:
        key = (kind, running.dtype, running.device)
        group = self._groups.setdefault(key, _Group(running.new_ones(()), running.new_zeros(())))
        group.running.append(running)
        group.previous.append(running.detach().clone())

    def fill(self, weights: Mapping[Hashable, float]) -> None:
        """Set the weight of the next batch for each kind of layer; not part of a captured step."""
        for (kind, _, _), group in self._groups.items():
            group.weight.fill_(weights[kind])
            group.complement.fill_(1.0 - weights[kind])

    def save(self) -> None:
        """Copy the running statistics before a pass."""
        for group in self._groups.values():
            torch._foreach_copy_(group.previous, group.running)

    def average(self) -> None:
        """Average the running statistics with those before the pass.

        Call it after the backward pass: autograd has saved the running statistics, and raises if they are modified.
        """
        for group in self._groups.values():
            torch._foreach_mul_(group.running, group.weight)
            torch._foreach_mul_(group.previous, group.complement)
            torch._foreach_add_(group.running, group.previous)

    def count_updates(self) -> None:
        """Remember how often each layer has been updated before a pass, for :meth:`are_updated_once`."""
        self._counts = self._updates()

    def are_updated_once(self) -> bool:
        """Return True if the pass since :meth:`count_updates` updated every layer once or not at all.

        A layer that is called twice would keep the statistics of its second call only. A layer that does not count its
        updates may also ignore its momentum.
        """
        changed = {
            id(running)
            for group in self._groups.values()
            for running, previous in zip(group.running, group.previous, strict=True)
            if not torch.equal(running, previous)
        }
        return all(
            after - before == 1 or (after == before and id(layer.running_mean) not in changed)
            for layer, before, after in zip(self._layers, self._counts, self._updates(), strict=True)
        )

    def _updates(self) -> list[int]:
        counts = [layer.num_batches_tracked for layer in self._layers]
        return [0 if count is None else int(count) for count in counts]
