"""Forward passes of an adapter's copy, carried out as its execution says."""

import logging
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regtta.execution import FIRST, PLAIN, Execution, Precision, Processes, Replay
from regtta.models import (
    BatchNormMode,
    BufferSlots,
    FeatureModel,
    Forward,
    RunForward,
    batch_norm_layers,
    call_model,
    forward_without_features,
    has_constant_updates,
    model_device,
)

# How far two ways of running a model in one precision may be apart, relative to the largest number of a result.
TOLERANCES: Mapping[Precision, float] = types.MappingProxyType({"float32": 1e-3, "tf32": 1e-2, "bfloat16": 5e-2})

_Pass = Callable[[Tensor], tuple[Tensor, ...]]

logger = logging.getLogger(__name__)


def laid_out(model: nn.Module, execution: Execution) -> nn.Module:
    """The model, its weights in the order of memory that the execution asks for."""
    return model.to(memory_format=torch.channels_last) if execution.channels_last else model


def settled(execution: Execution, model: nn.Module, mode: BatchNormMode, processes: Processes) -> Execution:
    """The execution, less what cannot be done for this model here; the log says what and why."""
    why = ""
    if _has_hooks(model):
        why = "the model has hooks, which would not be called"
    elif not has_constant_updates(batch_norm_layers(model), mode):
        why = f"BatchNorm's statistics ({mode}) are weighted anew at every step"
    elif processes.size > 1:
        why = "several processes work together, and what they exchange is not part of a graph"
    if why and (execution.compile or execution.capture):
        logger.warning("The model is neither compiled nor captured: %s.", why)
        return replace(execution, compile=False, capture=False)
    if execution.capture and model_device(model).type != "cuda":
        logger.warning("Steps are not captured: that takes one of NVIDIA's GPUs, and the model is not on one.")
        return replace(execution, capture=False)
    return execution


@dataclass(frozen=True)
class Runners:
    """Two ways to run one model.

    Attributes:
        usual: as the execution says.
        odd: without compiling, for batches of sizes that may not come again.
    """

    usual: RunForward
    odd: RunForward


def runners(model: nn.Module, head: str | None, execution: Execution) -> Runners:
    """What runs ``model`` and sees its features at ``head``, as the execution says."""
    exact = execution.precision == "bfloat16"
    plain = forward_without_features(model) if head is None else FeatureModel(model, head, exact_head=exact)
    usual = plain if execution == PLAIN else _Executed(model, plain, execution)
    return Runners(usual, _Executed(model, plain, replace(execution, compile=False)) if execution.compile else usual)


class _Executed:
    """Runs a model in another precision or layout, and compiled where it is asked for."""

    def __init__(self, model: nn.Module, plain: RunForward, execution: Execution) -> None:
        self._plain = plain
        self._execution = execution
        self._device = model_device(model)
        self._dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        compiling = execution.compile and isinstance(plain, FeatureModel)
        self._compiled = _compiled(model) if compiling else None
        self._seen: Counter[tuple[object, ...]] = Counter()

    def __call__(self, inputs: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        if self._execution.channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with self._execution.arithmetic(self._device):
            forward = self._run(inputs) if tensors is None else self._plain(inputs, tensors)
        return Forward(self._widened(forward.features), self._widened(forward.outputs))

    def _run(self, inputs: Tensor) -> Forward:
        """Compiled once inputs of this shape have come a few times: compiling takes longer than many a step."""
        kind = (inputs.shape, inputs.dtype, torch.is_grad_enabled())
        self._seen[kind] += 1
        if self._compiled is None or self._seen[kind] < FIRST or not isinstance(self._plain, FeatureModel):
            return self._plain(inputs)
        try:
            return self._plain.run_with(self._compiled, inputs)
        except Exception as error:  # compilers fail in ways of their own
            forward = self._plain(inputs)  # what is wrong with the model or the batch itself is raised here
            self._compiled = None
            logger.warning("The model is not compiled (%s: %s).", type(error).__name__, str(error).splitlines()[0])
            return forward

    def _widened(self, values: Tensor) -> Tensor:
        return values.to(self._dtype) if values.is_floating_point() else values


@dataclass(frozen=True)
class Dealt:
    """A batch dealt to processes.

    Attributes:
        inputs: (B, ...) this process's samples; all of them where there is one process.
        targets: (B, ...) their labels, for the one method that takes them.
        counts: how many samples each process has.
        whole: whether these are all samples of the batch that came. A batch that samples were left out of has a size
            that may not come again, and is run without compiling or capturing.
    """

    inputs: Tensor
    targets: Tensor | None
    counts: Sequence[int]
    whole: bool = True


def _compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def run(inputs: Tensor) -> Tensor:
        return call_model(model, inputs)

    # The compiler counts what it has compiled by code object, and gives up after eight: every adapter has its own.
    own = types.FunctionType(run.__code__.replace(), run.__globals__, closure=run.__closure__)
    return torch.compile(own, dynamic=False)


class Passes:
    """Passes in eval mode that leave everything as it is: of the model as it is now, and as it was at first.

    Args:
        runners: run the model.
        as_begun: tensors that make it what it was.
        execution: as settled.
        processes: who else has samples of each batch.
        slots: of the model's buffers.
    """

    def __init__(
        self,
        runners: "Runners",
        as_begun: Mapping[str, Tensor],
        execution: Execution,
        processes: Processes,
        slots: BufferSlots,
    ) -> None:
        def passing(forward: RunForward, tensors: Mapping[str, Tensor] | None) -> _Pass:
            def run(inputs: Tensor) -> tuple[Tensor, Tensor]:
                try:
                    return _both(forward(inputs, tensors))
                finally:
                    slots.restore()

            return run

        self._processes = processes
        self._now = passing(runners.usual, None)
        self._at_first = passing(runners.usual, as_begun)
        self._odd_now = passing(runners.odd, None)
        self._odd_at_first = passing(runners.odd, as_begun)
        if execution.capture:
            tolerance = TOLERANCES[execution.precision]
            self._now = Replay(self._now, "A prediction", tolerance=tolerance)
            self._at_first = Replay(self._at_first, "A pass of the source model", tolerance=tolerance)

    @torch.no_grad()
    def here(self, inputs: Tensor) -> Forward:
        """By the model as it is, of samples of this process alone."""
        return Forward(*self._now(inputs))

    def current(self, dealt: Dealt) -> Forward:
        """By the model as it is, of the samples of all processes."""
        return self._together(self._now if dealt.whole else self._odd_now, dealt)

    def source(self, dealt: Dealt) -> Forward:
        """By the model as it was, of the samples of all processes."""
        return self._together(self._at_first if dealt.whole else self._odd_at_first, dealt)

    def own(self, outputs: Tensor, dealt: Dealt) -> Tensor:
        """Those of this process's samples."""
        return self._processes.own(outputs, dealt.counts)

    @torch.no_grad()
    def _together(self, run: Callable[[Tensor], tuple[Tensor, ...]], dealt: Dealt) -> Forward:
        if self._processes.size == 1:
            return Forward(*run(dealt.inputs))
        local = on_rows(lambda inputs: Forward(*run(inputs)), dealt.inputs)
        return Forward(*(self._processes.gather(rows, dealt.counts) for rows in _both(local)))


def on_rows(forward: Callable[[Tensor], Forward], inputs: Tensor) -> Forward:
    """A pass on any number of rows: for none the model runs on one that stands for nothing, and its row is left out.

    So a process without samples takes part in what the others exchange on the way.
    """
    if len(inputs):
        return forward(inputs)
    nothing = forward(inputs.new_zeros(1, *inputs.shape[1:]))
    return Forward(nothing.features[:0], nothing.outputs[:0])


def _both(forward: Forward) -> tuple[Tensor, Tensor]:
    return forward.features, forward.outputs


def _has_hooks(model: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind) for module in model.modules() for kind in kinds)
