"""Outputs of inner layers of a model, recorded during its forward passes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class LayerOutputs:
    """Reusable context manager that records the outputs of layers in the first forward pass inside the block.

    Further passes inside the block, and further calls of a layer in one pass, are not recorded. The model is left as it
    was after the block.

    Args:
        layers: the layers, by name.

    Attributes:
        values: output of each layer that was called, by name, with its graph; those of the last block.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        >>> with LayerOutputs({"1": net[1]}) as outputs:
        ...     _ = net(torch.zeros(4, 2))
        >>> outputs["1"].shape
        torch.Size([4, 3])
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self._layers = layers
        self._hooks: list[RemovableHandle] = []
        self.values: dict[str, Tensor] = {}

    def __enter__(self) -> dict[str, Tensor]:
        self.values = {}
        # Hooks, since torch's transformer layers bypass their normalisation layers in eval mode unless these have any.
        self._hooks = [layer.register_forward_hook(partial(self._record, name)) for name, layer in self._layers.items()]
        return self.values

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _record(self, name: str, _: nn.Module, __: tuple[Any, ...], outputs: object) -> None:
        if isinstance(outputs, Tensor):
            self.values.setdefault(name, outputs)
