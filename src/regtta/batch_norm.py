"""BatchNorm while a model adapts: whose statistics it normalises by, and what becomes of the running ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from regtta.shared_batch_norm import Shares
from regtta.standing_in import stand_in
from regtta.state_validation import require_count, require_mapping

BatchNormMode = Literal["batch", "debiased", "blended", "source"]

BATCH_NORM_MODES: tuple[str, ...] = get_args(BatchNormMode)
ALL_HERE = Shares()
_Result = TypeVar("_Result")
LONGEST = 16  # times the prior: what a blend remembers of the target, so that it can follow one that moves


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """The BatchNorm layers of ``model``, in order."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def never_negative(model: nn.Module) -> set[str]:
    """Return the names of the buffers of normalisation layers that hold variances and counts."""
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _NormBase)}
    return {f"{name}.{buffer}".lstrip(".") for name in norms for buffer in ("running_var", "num_batches_tracked")}


def steady(layers: Sequence[_BatchNorm], mode: BatchNormMode) -> bool:
    """Whether every pass that learns does the same to its layers; else their statistics are weighted anew each time."""
    return not layers or mode == "source" or (mode == "batch" and all(layer.momentum is not None for layer in layers))


class BatchNormSwitch:
    """The BatchNorm layers of a model, between adapting and predicting. Made while they are as trained.

    Args:
        layers: the BatchNorm layers.
        mode: how they behave while adapting. ``"batch"`` normalises by the batch and updates the
            running statistics with each layer's own momentum m. ``"debiased"`` does the same with
            momentum ``m / (1 − (1−m)ⁿ)`` at the n-th update: the running average is then a weighted
            mean of the target's batches alone, with nothing of the source left in it.
            ``"blended"`` normalises by the source's statistics and those of the n target samples so far, weighted
            by their counts, ``(p·source + n·target) / (p + n)``; fit for batches of any size.
            ``"source"`` leaves them as trained.
        prior: p, how many samples the source's statistics count as in a blend.
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
        self._direct = [partial(_normalised, layer) if _ordinary(layer) else None for layer in layers]
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._endings: list[Callable[[], None]] = []  # of what stands in for layers in a pass that learns

    @property
    def needs_batches(self) -> bool:
        """Whether one sample is too few to normalise by."""
        return bool(self.layers) and self.mode in ("batch", "debiased")

    def count(self, size: int) -> None:
        """Count a pass that learns from ``size`` samples."""
        if self.mode == "source":
            return
        self.updates += 1
        if self.mode == "blended":
            self._known = min(self.samples, LONGEST * self.prior)
            self._blended, self.samples = self.samples, self._known + size

    def adapting(self, size: int, shares: Shares = ALL_HERE) -> None:
        """Get ready for one forward pass that learns from ``size`` samples, dealt to processes as ``shares`` says."""
        self.count(size)
        self.switch(size, shares)

    def switch(self, size: int, shares: Shares = ALL_HERE) -> None:
        """The same for a pass that has been counted."""
        if self.mode == "source":
            return
        if self.mode == "blended":
            counts = (self._blended, self._known, size)
            self._hooks = [blend.watch(self.prior, counts, shares) for blend in self._blends]
            return
        counters: list[Tensor] = []
        for layer, momentum, direct in zip(self.layers, self._momenta, self._direct, strict=True):
            layer.__dict__["training"] = True  # as layer.train() does, in a tenth of the time
            if self.mode == "debiased":
                layer.momentum = debiased_momentum(momentum, self.updates)
            if shares.processes.size > 1:
                self._endings.append(stand_in(layer, partial(shares.normalise, layer)))
            elif direct is not None and size > 1:  # on one sample the layer may have something to say
                self._endings.append(stand_in(layer, direct))
                if layer.num_batches_tracked is not None:
                    counters.append(layer.num_batches_tracked)
        if counters:
            torch._foreach_add_(counters, 1)

    def extra_pass(self, run: Callable[[Tensor], _Result], inputs: Tensor) -> _Result:
        """Return ``run(inputs)``, normalised as the pass that learns is, without moving any running statistics.

        A method may run the model again on other views of a batch. Predictions are normalised by running statistics,
        so these must be of the samples themselves, not of turned or augmented copies.
        """
        with self._statistics_kept():
            return run(inputs)

    @contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """Let layers in training mode move copies of their running statistics for the length of the block."""
        # The tensors themselves must not be written to, not even to restore them: the backward pass of the pass before
        # has kept them, and autograd refuses what has changed since.
        moving = [(layer._buffers, dict(layer._buffers)) for layer in self.layers if layer.training]
        for buffers, own in moving:
            buffers.update({name: value.clone() for name, value in own.items() if value is not None})
        try:
            yield
        finally:
            for buffers, own in moving:
                buffers.update(own)

    def predicting(self) -> None:
        """Back to eval mode and to each layer's own momentum."""
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
        """What has been counted."""
        return {"updates": self.updates, "samples": self.samples}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` is one that :meth:`state_dict` could have given."""
        found = require_mapping(path, state, ("updates", "samples"))
        require_count(f"{path}/updates", found["updates"])
        require_count(f"{path}/samples", found["samples"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from there."""
        self.updates, self.samples = state["updates"], state["samples"]


def _ordinary(layer: _BatchNorm) -> bool:
    """Whether torch's own layer is all that it is, and its batches are counted for nobody."""
    own = type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return own and layer.track_running_stats and layer.running_mean is not None and layer.momentum is not None


def _normalised(layer: _BatchNorm, inputs: Tensor) -> Tensor:
    """What an ordinary layer gives in training mode, in half the time: it counts its batches one layer at a time."""
    layer._check_input_dim(inputs)  # type: ignore[no-untyped-call]
    parameters, buffers = layer._parameters, layer._buffers
    return torch.batch_norm(
        inputs,
        parameters["weight"],
        parameters["bias"],
        buffers["running_mean"],
        buffers["running_var"],
        True,
        layer.momentum or 0.0,
        layer.eps,
        torch.backends.cudnn.enabled,
    )


class _Blend:
    """One layer whose running statistics are a blend of the source's and the target's.

    The blend is all that is kept: the target's own part is what remains once the source's is taken out.
    """

    def __init__(self, layer: _BatchNorm) -> None:
        self.layer = layer
        self.source = [running.detach().clone() for running in self._running()]

    def watch(self, prior: int, counts: tuple[int, int, int], shares: Shares) -> torch.utils.hooks.RemovableHandle:
        """Take the next batch into the blend before it is normalised by it.

        ``counts`` are the samples in the blend so far, how many of them it is to remember, and those of the batch.
        """
        taken = False

        def take(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            nonlocal taken
            if not taken:  # a method may run the model again on views of the same samples
                taken = True
                with torch.no_grad():
                    self._take(shares.statistics(args[0].detach()), prior, counts)

        return self.layer.register_forward_pre_hook(take)

    def _take(self, batch: tuple[Tensor, Tensor, int], prior: int, counts: tuple[int, int, int]) -> None:
        blended, known, size = counts
        mean, variance, _ = batch
        if blended:
            past = [
                ((prior + blended) * now.to(mean) - prior * source.to(mean)) / blended
                for now, source in zip(self._running(), self.source, strict=True)
            ]
            share = size / (known + size)
            # Of two groups of samples: the variance within them, and that between their means.
            variance = (1 - share) * past[1] + share * variance + share * (1 - share) * (past[0] - mean) ** 2
            mean = past[0] + share * (mean - past[0])
        weight = (known + size) / (prior + known + size)
        for now, source, target in zip(self._running(), self.source, (mean, variance), strict=True):
            now.copy_(source + weight * (target - source))

    def _running(self) -> list[Tensor]:
        mean, variance = self.layer.running_mean, self.layer.running_var
        return [] if mean is None or variance is None else [mean, variance]


def debiased_momentum(momentum: float | None, update: int) -> float:
    """Momentum that makes the running average at its ``update``-th value a mean of those values.

    A layer whose momentum is ``None`` keeps a plain cumulative mean: ``1/n``.

    Example:
        >>> [round(debiased_momentum(0.1, n), 4) for n in (1, 2, 1000)]
        [1.0, 0.5263, 0.1]
    """
    if momentum is None:
        return 1.0 / update
    return momentum / (1.0 - (1.0 - momentum) ** update)
