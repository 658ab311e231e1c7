"""Synchronized BatchNorm over a batch that is sharded across processes."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from regtta.execution.distributed import SINGLE_PROCESS, Communicator


@dataclass(frozen=True)
class BatchSharding:
    """Sharding of one batch across processes.

    Attributes:
        processes: the processes that hold the shards.
        empty: True if the shard of this process is empty; it then runs the model on a dummy sample of weight 0.
    """

    processes: Communicator = SINGLE_PROCESS
    empty: bool = False

    def statistics(self, inputs: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return mean ``(C,)`` and biased variance ``(C,)`` over the whole batch, and the number of values per channel.

        Differentiable. Pools per-process means and variances instead of sums of squares, to avoid cancellation.

        Args:
            inputs: ``(B, C, ...)``, the shard of this process.
        """
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        dims = [dim for dim in range(inputs.ndim) if dim != 1]
        mean, variance = inputs.mean(dim=dims), inputs.var(dim=dims, correction=0)
        values = inputs.numel() // inputs.shape[1]
        if self.processes.size == 1:
            return mean, variance, values
        own = torch.tensor([0 if self.empty else values], device=mean.device, dtype=torch.float64)
        one_row_each = [1] * self.processes.size
        counts = self.processes.gather(own, one_row_each)
        pooled = self.processes.gather(torch.stack([mean, variance]).unsqueeze(0), one_row_each)
        weights = (counts / counts.sum()).to(mean.dtype).unsqueeze(1)
        mean = (weights * pooled[:, 0]).sum(dim=0)
        variance = (weights * (pooled[:, 1] + (pooled[:, 0] - mean) ** 2)).sum(dim=0)
        return mean, variance, int(counts.sum())

    def normalise(self, layer: _BatchNorm, inputs: Tensor) -> Tensor:
        """Return the training-mode output of ``layer`` for this process's shard and update its running statistics."""
        mean, variance, values = self.statistics(inputs)
        _update_running_statistics(layer, mean.detach(), variance.detach() * (values / max(1, values - 1)))
        shape = [1, -1] + [1] * (inputs.ndim - 2)
        scale = torch.rsqrt(variance + layer.eps)
        if layer.affine:
            scale = scale * layer.weight
        shift = -mean * scale
        if layer.affine:
            shift = shift + layer.bias
        return (inputs * scale.reshape(shape) + shift.reshape(shape)).to(inputs.dtype)


@torch.no_grad()
def _update_running_statistics(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Update by the layer's momentum, or as a cumulative average if ``momentum`` is None."""
    if layer.running_mean is None or layer.running_var is None:
        return
    momentum = layer.momentum
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        momentum = 1 / int(layer.num_batches_tracked) if momentum is None else momentum
    for running, current in ((layer.running_mean, mean), (layer.running_var, variance)):
        running.lerp_(current.to(running), momentum or 0.0)
