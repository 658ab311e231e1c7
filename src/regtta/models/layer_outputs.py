"""Outputs of inner layers of a model, recorded during its forward passes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from regtta.models.features import override_forward


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
        self._endings: list[Callable[[], None]] = []
        self.values: dict[str, Tensor] = {}

    def __enter__(self) -> dict[str, Tensor]:
        self.values = {}
        for name, layer in self._layers.items():
            self._endings.append(override_forward(layer, partial(self._record, name, layer.forward)))
        return self.values

    def __exit__(self, *_: object) -> None:
        for end in reversed(self._endings):
            end()
        self._endings = []

    def _record(self, name: str, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outputs = run(*args, **kwargs)
        if isinstance(outputs, Tensor):
            self.values.setdefault(name, outputs)
        return outputs
