"""BatchNorm during adaptation: the statistics used for normalisation and the update of the running statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from regtta.execution import BatchSharding
from regtta.models.features import override_forward
from regtta.models.model_inputs import Inputs

BatchNormMode = Literal["batch", "debiased", "blended", "cumulative", "source"]

BATCH_NORM_MODES: tuple[str, ...] = get_args(BatchNormMode)
UNSHARDED = BatchSharding()
_Result = TypeVar("_Result")
MAX_MEMORY = 16  # maximum weight of past target samples in a blend, in units of the prior, to track a changing target


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers of ``model``, in order."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def non_negative_buffers(model: nn.Module) -> set[str]:
    """Return the names of the buffers of normalisation layers that hold variances and counts."""
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _NormBase)}
    return {f"{name}.{buffer}".lstrip(".") for name in norms for buffer in ("running_var", "num_batches_tracked")}


def has_constant_updates(layers: Sequence[_BatchNorm], mode: BatchNormMode) -> bool:
    """Return True if all adaptation passes update the layers alike; otherwise the momentum changes with each pass."""
    return not layers or mode == "source" or (mode == "batch" and all(layer.momentum is not None for layer in layers))


class BatchNormSwitch:
    """Switches the BatchNorm layers of a model between adaptation and prediction; created from a trained model.

    Args:
        layers: the BatchNorm layers.
        mode: behaviour during adaptation. ``"batch"`` normalises by the batch and updates the
            running statistics with each layer's own momentum m. ``"debiased"`` does the same with
            momentum ``m / (1 − (1−m)ⁿ)`` at the n-th update: the running average is then a weighted
            mean of target batches only, without any contribution of the source.
            ``"blended"`` normalises by the source statistics and those of the n target samples so far, weighted
            by their counts, ``(p·source + n·target) / (p + n)``; suitable for any batch size.
            ``"cumulative"`` normalises by the batch; the running statistics are the mean of those of all target
            batches, weighted by their sizes.
            ``"source"`` keeps the trained statistics.
        prior: weight p of the source statistics in a blend, in samples.
    """

    def __init__(self, layers: Sequence[_BatchNorm], mode: BatchNormMode, prior: int = 1) -> None:
        self.layers = layers
        self.mode = mode
        self.prior = prior
        self.updates = 0
        self.samples = 0
        self._blended = self._known = 0
        self._momenta = [layer.momentum for layer in layers]
        self._blends = [_Blend(layer) for layer in layers if layer.running_mean is not None]
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._endings: list[Callable[[], None]] = []  # remove the forward overrides of an adaptation pass

    @property
    def needs_batches(self) -> bool:
        """True if normalisation requires more than one sample."""
        return bool(self.layers) and self.mode in ("batch", "debiased", "cumulative")

    def count(self, size: int) -> None:
        """Count an adaptation pass on ``size`` samples."""
        if self.mode == "source":
            return
        self.updates += 1
        if self.mode == "blended":
            self._known = min(self.samples, MAX_MEMORY * self.prior)
            self._blended, self.samples = self.samples, self._known + size
        elif self.mode == "cumulative":
            self.samples += size

    def begin_adaptation(self, size: int, sharding: BatchSharding = UNSHARDED) -> None:
        """Count and prepare an adaptation pass on ``size`` samples, distributed over processes by ``sharding``."""
        self.count(size)
        if self.mode == "source":
            return
        if self.mode == "blended":
            counts = (self._blended, self._known, size)
            self._hooks = [blend.register(self.prior, counts, sharding) for blend in self._blends]
            return
        for layer, momentum in zip(self.layers, self._momenta, strict=True):
            layer.__dict__["training"] = True  # same effect as layer.train(), but ten times faster
            if self.mode == "debiased":
                layer.momentum = debiased_momentum(momentum, self.updates)
            elif self.mode == "cumulative":
                layer.momentum = size / self.samples
            if sharding.processes.size > 1:
                self._endings.append(override_forward(layer, partial(sharding.normalise, layer)))

    def extra_pass(self, run: Callable[[Inputs], _Result], inputs: Inputs) -> _Result:
        """Return ``run(inputs)``, normalised as in the adaptation pass, without updating running statistics.

        A method may run the model again on other views of a batch. Predictions are normalised by the running
        statistics, which must therefore come from the samples themselves, not from rotated or augmented copies.
        """
        with self._statistics_unchanged():
            return run(inputs)

    @contextmanager
    def _statistics_unchanged(self) -> Iterator[None]:
        """Let layers in training mode update copies of their running statistics inside the block."""
        # The tensors themselves must not be written to, not even to restore them: autograd has saved them for the
        # backward pass of the previous forward pass, and raises if they have been modified in place.
        moving = [(layer._buffers, dict(layer._buffers)) for layer in self.layers if layer.training]
        for buffers, own in moving:
            buffers.update({name: value.clone() for name, value in own.items() if value is not None})
        try:
            yield
        finally:
            for buffers, own in moving:
                buffers.update(own)

    def end_adaptation(self) -> None:
        """Restore eval mode and each layer's own momentum."""
        for hook in self._hooks:
            hook.remove()
        for end in self._endings:
            end()
        self._hooks, self._endings = [], []
        for layer, momentum in zip(self.layers, self._momenta, strict=True):
            layer.__dict__["training"] = False
            if layer.momentum != momentum:
                layer.momentum = momentum

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, to be restored by :meth:`load_state_dict`."""
        return {"updates": self.updates, "samples": self.samples}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self.updates, self.samples = state["updates"], state["samples"]


class _Blend:
    """Layer whose running statistics are a blend of source and target statistics.

    Only the blend is stored; the target's part is recovered by subtracting the source's.
    """

    def __init__(self, layer: _BatchNorm) -> None:
        self.layer = layer
        self.source = [running.detach().clone() for running in self._running()]

    def register(
        self, prior: int, counts: tuple[int, int, int], sharding: BatchSharding
    ) -> torch.utils.hooks.RemovableHandle:
        """Register a hook that updates the blend with the next batch before it is normalised.

        ``counts`` are the target samples in the blend so far, the weight they keep, and the size of the batch.
        """
        updated = False

        def update(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            nonlocal updated
            if not updated:  # a method may run the model again on views of the same samples
                updated = True
                with torch.no_grad():
                    self._update(sharding.statistics(args[0].detach()), prior, counts)

        return self.layer.register_forward_pre_hook(update)

    def _update(self, batch: tuple[Tensor, Tensor, int], prior: int, counts: tuple[int, int, int]) -> None:
        blended, known, size = counts
        mean, variance, _ = batch
        if blended:
            past = [
                ((prior + blended) * now.to(mean) - prior * source.to(mean)) / blended
                for now, source in zip(self._running(), self.source, strict=True)
            ]
            share = size / (known + size)
            # Total variance of two groups of samples: within the groups and between their means.
            variance = (1 - share) * past[1] + share * variance + share * (1 - share) * (past[0] - mean) ** 2
            mean = past[0] + share * (mean - past[0])
        weight = (known + size) / (prior + known + size)
        for now, source, target in zip(self._running(), self.source, (mean, variance), strict=True):
            now.copy_(source + weight * (target - source))

    def _running(self) -> list[Tensor]:
        mean, variance = self.layer.running_mean, self.layer.running_var
        return [] if mean is None or variance is None else [mean, variance]


def debiased_momentum(momentum: float | None, update: int) -> float:
    """Return the momentum that makes the running average after ``update`` updates a weighted mean of these only.

    ``m / (1 − (1−m)ⁿ)``. For a momentum of ``None``, a cumulative mean, it is ``1/n``.

    Example:
        >>> [round(debiased_momentum(0.1, n), 4) for n in (1, 2, 1000)]
        [1.0, 0.5263, 0.1]
    """
    if momentum is None:
        return 1.0 / update
    return momentum / (1.0 - (1.0 - momentum) ** update)
