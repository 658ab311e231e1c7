"""Calls of the affine layers of a model during the search for its head."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from regtta.models.features import override_forward
from regtta.models.heads import is_affine_layer


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


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set all modules to eval mode inside the block and restore each module's mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
