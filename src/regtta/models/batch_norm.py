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
from regtta.models.running_statistics import RunningStatistics

BatchNormMode = Literal["batch", "debiased", "blended", "cumulative", "source"]

BATCH_NORM_MODES: tuple[str, ...] = get_args(BatchNormMode)
UNSHARDED = BatchSharding()
_Result = TypeVar("_Result")
_WEIGHTED = ("debiased", "cumulative")  # modes in which the weight of a batch depends on the number of updates
MAX_MEMORY = 16  # maximum weight of past target samples in a blend, in units of the prior, to track a changing target


def batch_norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers of ``model``, in order."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def non_negative_buffers(model: nn.Module) -> set[str]:
    """Return the names of the buffers of normalisation layers that hold variances and counts."""
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _NormBase)}
    return {f"{name}.{buffer}".lstrip(".") for name in norms for buffer in ("running_var", "num_batches_tracked")}


def has_constant_operations(layers: Sequence[_BatchNorm], mode: BatchNormMode, momentum: float | None = None) -> bool:
    """Return True if all adaptation passes can perform the same operations, as compiled and captured code does.

    ``momentum`` replaces that of the layers. A cumulative mean, their momentum of ``None``, is computed by torch with a
    number that differs from pass to pass.
    """
    if not layers or mode in ("source", *_WEIGHTED):
        return True
    return mode == "batch" and (momentum is not None or all(layer.momentum is not None for layer in layers))


class BatchNormSwitch:
    """Switches the BatchNorm layers of a model between adaptation and prediction; created from a trained model.

    Args:
        layers: the BatchNorm layers.
        mode: behaviour during adaptation. ``"batch"`` normalises by the batch and updates the
            running statistics with momentum m. ``"debiased"`` does the same with
            momentum ``m / (1 − (1−m)ⁿ)`` at the n-th update: the running average is then a weighted
            mean of target batches only, without any contribution of the source.
            ``"blended"`` normalises by the source statistics and those of the n target samples so far, weighted
            by their counts, ``(p·source + n·target) / (p + n)``; suitable for any batch size.
            ``"cumulative"`` normalises by the batch; the running statistics are the mean of those of all target
            batches, weighted by their sizes.
            ``"source"`` keeps the trained statistics.
        prior: weight p of the source statistics in a blend, in samples.
        momentum: m in the modes ``"batch"`` and ``"debiased"``; ``None`` is each layer's own.
        constant_operations: perform the same operations in every adaptation pass, so that a step can be compiled and
            captured. :meth:`set_weights` must then precede a step, and :meth:`finish_update` follow its backward pass.

    Attributes:
        statistics: running statistics that are averaged by :meth:`finish_update`; None if each pass updates them.
    """

    def __init__(
        self,
        layers: Sequence[_BatchNorm],
        mode: BatchNormMode,
        prior: int = 1,
        *,
        momentum: float | None = None,
        constant_operations: bool = False,
    ) -> None:
        self.layers = layers
        self.mode = mode
        self.prior = prior
        self.momentum = momentum
        self.updates = 0
        self.samples = 0
        self._blended = self._known = 0
        self._momenta = [layer.momentum for layer in layers]
        self._effective = [own if momentum is None else momentum for own in self._momenta]
        self._averages = False  # True once a pass has shown that the statistics can be averaged afterwards
        self.statistics: RunningStatistics | None = None
        if constant_operations and mode in _WEIGHTED:
            self.statistics = RunningStatistics(layers, self._effective)
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
        if self.statistics is not None:
            self.statistics.save()
            if not self._averages:
                self.statistics.count_updates()
        for layer, momentum in zip(self.layers, self._effective, strict=True):
            layer.__dict__["training"] = True  # same effect as layer.train(), but ten times faster
            if self._averages:
                layer.momentum = 1.0
            elif self.mode in _WEIGHTED:
                layer.momentum = self._weight(momentum, self.updates, size / max(self.samples, 1))
            elif self.momentum is not None:
                layer.momentum = momentum
            if sharding.processes.size > 1:
                self._endings.append(override_forward(layer, partial(sharding.normalise, layer)))

    def _weight(self, momentum: float | None, update: int, share: float) -> float:
        """Return the weight of a batch in the running statistics, which is ``share`` in a cumulative mean."""
        return debiased_momentum(momentum, update) if self.mode == "debiased" else share

    def set_weights(self, size: int) -> None:
        """Set the weights of the next batch, of ``size`` samples, before a step with constant operations."""
        if self.statistics is not None:
            update, share = self.updates + 1, size / (self.samples + size)
            self.statistics.fill({m: self._weight(m, update, share) for m in set(self._effective)})

    def finish_update(self) -> bool:
        """Average the running statistics after the backward pass of a step with constant operations.

        The first pass updates them as without constant operations, and shows whether later ones can be averaged.

        Returns:
            False if they cannot, since the model calls a layer several times in one pass or a layer ignores its
            momentum; all passes then update the statistics themselves.
        """
        if self.statistics is None:
            return False
        if self._averages:
            self.statistics.average()
        elif self.statistics.are_updated_once():
            self._averages = True
        else:
            self.statistics = None
        return self._averages

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
