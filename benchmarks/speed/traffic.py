"""Lower bounds of the bytes and operations of a step with maximal fusion.

Counted on a forward pass with hooks, for a network of convolutions with BatchNorm by the batch, of which the affine
parameters alone are trained:

* The output of a convolution must be written, since BatchNorm needs all of it before it can normalise any, and is
  read by what follows, into which normalisation and ReLU are fused. Backward it is read twice: for BatchNorm's two
  sums, and once those are known for the gradient. That gradient is written by one convolution and read by the next.
* Where branches meet (the output of a residual block or of a pooling) the sum is written, read by the next block and
  by its shortcut, read once backward for ReLU's mask, and its gradient is written and read twice likewise.
* The input is read, and the weights are read forward and backward. No gradients of weights are formed.

No cache is assumed, so this is a lower bound of memory traffic for tensors larger than the cache. A product
with the weights is formed forward, and one backward for the gradient of its input.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CONVOLUTION_TRIPS = 2 + 2 + 2  # forward, backward, gradient
JUNCTION_TRIPS = 3 + 1 + 3
BLOCKS = ("Bottleneck", "BasicBlock")


@dataclass(frozen=True)
class Traffic:
    """Lower bounds of a step.

    Attributes:
        convolved: number of elements in the outputs of convolutions.
        joined: number of elements in the outputs of junctions of branches.
        inputs: number of elements in the batch.
        weights: number of elements in the weights.
        multiplications: multiply-add operations of one forward pass.
    """

    convolved: int
    joined: int
    inputs: int
    weights: int
    multiplications: int

    def bytes_moved(self, width: int = 2) -> int:
        """Return the bytes that a step moves with elements of ``width`` bytes; the input is float32."""
        trips = CONVOLUTION_TRIPS * self.convolved + JUNCTION_TRIPS * self.joined + 2 * self.weights
        return width * trips + 4 * self.inputs

    @property
    def operations(self) -> int:
        """Floating-point operations of a step: two per multiply-add, forward and backward."""
        return 2 * 2 * self.multiplications


@torch.no_grad()
def traffic(model: nn.Module, batch: Tensor) -> Traffic:
    """Count the traffic of one forward pass of ``model``, which is not modified."""
    counts = {"convolved": 0, "joined": 0, "multiplications": 0}

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            counts["convolved"] += output.numel()
            counts["multiplications"] += output.numel() * module.weight[0].numel()
        else:
            counts["joined"] += output.numel()

    handles = [
        module.register_forward_hook(count)
        for module in model.modules()
        if isinstance(module, nn.Conv2d | nn.MaxPool2d) or type(module).__name__ in BLOCKS
    ]
    try:
        model(batch)
    finally:
        for handle in handles:
            handle.remove()
    weights = sum(parameter.numel() for parameter in model.parameters())
    return Traffic(inputs=batch.numel(), weights=weights, **counts)
