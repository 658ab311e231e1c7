"""Calls of single layers: recording their inputs and outputs, and overriding what they return."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regtta.models.heads import is_affine_layer


def override_forward(module: nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Override the module's ``forward`` and return a function that removes the override.

    Hooks of the module are still called, and removal restores an earlier override.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 1)
        >>> end = override_forward(layer, lambda x: x + 1)
        >>> layer(torch.zeros(1))
        tensor([1.])
        >>> end()
        >>> "forward" in vars(layer)
        False
    """
    own = vars(module).get("forward")
    vars(module)["forward"] = forward

    def end() -> None:
        del vars(module)["forward"]
        if own is not None:
            vars(module)["forward"] = own

    return end


def layer_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the input of a layer, passed by position or by name."""
    return args[0] if args else next(iter(kwargs.values()))  # type: ignore[no-any-return]


class CallRecorder:
    """Records inputs and outputs of a layer between :meth:`begin` and :meth:`end`.

    Args:
        layer: the layer.
        exact: run the layer in its own precision even if the rest of the model runs under autocast: a bfloat16
            prediction has at most three significant digits.
    """

    def __init__(self, layer: nn.Module, *, exact: bool) -> None:
        self.layer = layer
        self._exact = exact
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def begin(self) -> None:
        """Start to record."""
        self.inputs, self.outputs = [], []
        self._run = self.layer.forward
        self.end = override_forward(self.layer, self._forward)

    def _forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        inputs = layer_input(args, kwargs)
        self.inputs.append(inputs)
        if not self._exact:
            outputs: Tensor = self._run(*args, **kwargs)
        else:
            with torch.autocast(inputs.device.type, enabled=False):
                outputs = self._run(inputs.to(next(self.layer.parameters()).dtype))
        self.outputs.append(outputs)
        return outputs


@dataclass
class LayerCall:
    """Call of an affine layer, the ``index``-th in its forward pass."""

    index: int
    name: str
    layer: nn.Module
    inputs: Tensor
    outputs: Tensor


@contextmanager
def override_affine_layers(model: nn.Module, handle: Callable[..., Tensor] | None) -> Iterator[None]:
    """Let ``handle(name, layer, run, args, kwargs)`` compute the outputs of every affine layer inside the block."""
    endings = []

    def override(name: str, layer: nn.Module, handle: Callable[..., Tensor]) -> Callable[[], None]:
        run = layer.forward
        return override_forward(layer, lambda *args, **kwargs: handle(name, layer, run, args, kwargs))

    if handle is not None:
        endings = [override(name, m, handle) for name, m in model.named_modules() if is_affine_layer(m)]
    try:
        yield
    finally:
        for end in endings:
            end()
