"""Forward passes of an adapter's copy of the model, carried out as its execution options require."""

import logging
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regtta.execution import PLAIN, WARMUP_CALLS, Communicator, Execution, GraphedCallable, Precision
from regtta.methods import Schedule
from regtta.models import (
    BufferSlots,
    FeatureModel,
    FeaturePooling,
    Forward,
    Inputs,
    OutputSelection,
    RunForward,
    batch_norm_layers,
    dummy_sample,
    forward_without_features,
    has_constant_operations,
    input_tensors,
    model_device,
    select_output,
)

# Largest difference between two ways of running a model in one precision, relative to the largest value of a result.
TOLERANCES: Mapping[Precision, float] = types.MappingProxyType({"float32": 1e-3, "tf32": 1e-2, "bfloat16": 5e-2})

_Pass = Callable[[Inputs], tuple[Tensor, ...]]

logger = logging.getLogger(__name__)


def to_memory_format(model: nn.Module, execution: Execution) -> nn.Module:
    """Return the model with its weights in the memory format of the execution."""
    return model.to(memory_format=torch.channels_last) if execution.channels_last else model


def resolve_execution(execution: Execution, model: nn.Module, schedule: Schedule, processes: Communicator) -> Execution:
    """Return the execution without the options that this model or device does not support, and log the reason."""
    reason = ""
    if _has_hooks(model):
        reason = "the model has hooks, which would not be called"
    elif not has_constant_operations(batch_norm_layers(model), schedule.batch_norm, schedule.bn_momentum):
        reason = f"BatchNorm's statistics ({schedule.batch_norm}) are weighted anew at every step"
    elif processes.size > 1:
        reason = "several processes adapt together, and their exchanges are not part of a graph"
    if reason and (execution.compile or execution.capture):
        logger.warning("The model is neither compiled nor captured: %s.", reason)
        return replace(execution, compile=False, capture=False)
    if execution.capture and model_device(model).type != "cuda":
        logger.warning("Steps are not captured: CUDA graphs require an NVIDIA GPU, and the model is not on one.")
        return replace(execution, capture=False)
    return execution


@dataclass(frozen=True)
class ForwardFunctions:
    """Two functions that run one model.

    Attributes:
        default: runs it with the execution options.
        uncompiled: runs it without compiling, for batch sizes that may not occur again.
    """

    default: RunForward
    uncompiled: RunForward


def make_forward(
    model: nn.Module,
    head: str | None,
    execution: Execution,
    *,
    output: OutputSelection | None = None,
    pooling: FeaturePooling | None = None,
) -> ForwardFunctions:
    """Return functions that run ``model``, select its ``output``, and extract the features at ``head``."""
    exact = execution.precision == "bfloat16"
    plain: RunForward = (
        forward_without_features(model, output)
        if head is None
        else FeatureModel(model, head, output=output, pooling=pooling, exact_head=exact)
    )
    if execution == PLAIN:
        return ForwardFunctions(plain, plain)
    default = _ExecutedForward(model, plain, execution, output)
    if not execution.compile:
        return ForwardFunctions(default, default)
    return ForwardFunctions(default, _ExecutedForward(model, plain, replace(execution, compile=False), output))


class _ExecutedForward:
    """Forward function in another precision or memory format, compiled if required."""

    def __init__(
        self, model: nn.Module, plain: RunForward, execution: Execution, output: OutputSelection | None
    ) -> None:
        self._plain = plain
        self._execution = execution
        self._device = model_device(model)
        self._dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        compiling = execution.compile and isinstance(plain, FeatureModel)
        self._compiled = _compile(model, output) if compiling else None
        self._seen: Counter[tuple[object, ...]] = Counter()

    def __call__(self, inputs: Inputs, tensors: Mapping[str, Tensor] | None = None) -> Forward:
        if self._execution.channels_last:
            inputs = _channels_last(inputs) if isinstance(inputs, Tensor) else inputs.map(_channels_last)
        with self._execution.arithmetic(self._device):
            forward = self._run(inputs) if tensors is None else self._plain(inputs, tensors)
        return Forward(self._to_dtype(forward.features), self._to_dtype(forward.outputs))

    def _run(self, inputs: Inputs) -> Forward:
        """Run the model, compiled from the third batch of a shape on: compiling takes longer than many steps."""
        tensors = input_tensors(inputs)
        signature = (tuple((tensor.shape, tensor.dtype) for tensor in tensors), torch.is_grad_enabled())
        self._seen[signature] += 1
        if self._compiled is None or self._seen[signature] < WARMUP_CALLS or not isinstance(self._plain, FeatureModel):
            return self._plain(inputs)
        try:
            return self._plain.run_with(self._compiled, inputs)
        except Exception as error:  # compilers raise errors of many types
            forward = self._plain(inputs)  # an error of the model or the batch itself is raised here
            self._compiled = None
            logger.warning("The model is not compiled (%s: %s).", type(error).__name__, str(error).splitlines()[0])
            return forward

    def _to_dtype(self, values: Tensor) -> Tensor:
        return values.to(self._dtype) if values.is_floating_point() else values


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _compile(model: nn.Module, output: OutputSelection | None) -> Callable[[Inputs], Tensor]:
    def run(args: tuple[object, ...], kwargs: dict[str, object]) -> Tensor:
        returned = model(*args, **kwargs)
        return returned if output is None and isinstance(returned, Tensor) else select_output(returned, output)

    # The compiler counts recompilations per code object and stops after eight, so every adapter has its own.
    own = types.FunctionType(run.__code__.replace(), run.__globals__, closure=run.__closure__)
    compiled = torch.compile(own, dynamic=False)

    def run_compiled(inputs: Inputs) -> Tensor:
        args, kwargs = ((inputs,), {}) if isinstance(inputs, Tensor) else (inputs.args, inputs.kwargs)
        outputs: Tensor = compiled(args, kwargs)
        return outputs

    return run_compiled


@dataclass(frozen=True)
class Shard:
    """The samples of one batch that this process holds.

    Attributes:
        inputs: ``(B, ...)``, the samples of this process; the whole batch if there is one process.
        targets: ``(B, ...)``, their labels, for the method that takes them.
        counts: number of samples of each process.
        whole: True if no samples of the batch were excluded. A batch without its excluded samples has a size that may
            not occur again, and runs without compiling or capturing.
    """

    inputs: Inputs
    targets: Tensor | None
    counts: Sequence[int]
    whole: bool = True


class GraphedForward:
    """Function of model inputs that is replayed from CUDA graphs, one for each structure and shape of the inputs.

    Args:
        body: maps inputs on a GPU to tensors.
        what: name of the function in log messages.
        tolerance: largest allowed difference between graph and eager call, relative to the maximum.
        undo: reverts the in-place updates of the last call.
    """

    def __init__(self, body: _Pass, what: str, *, tolerance: float, undo: Callable[[], None] | None = None) -> None:
        self._body, self._what, self._tolerance, self._undo = body, what, tolerance, undo
        self._graphed: dict[str, GraphedCallable] = {}

    @property
    def graphs(self) -> int:
        """Number of captured graphs."""
        return sum(graphed.graphs for graphed in self._graphed.values())

    def reset(self) -> None:
        """Drop all graphs, for use when the tensors that they write to have been replaced."""
        self._graphed.clear()

    def __call__(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Return the results of the function; later calls do not overwrite them."""
        structure = "" if isinstance(inputs, Tensor) else inputs.structure
        if structure not in self._graphed:

            def body(*tensors: Tensor) -> tuple[Tensor, ...]:
                return self._body(tensors[0] if isinstance(inputs, Tensor) else inputs.with_tensors(tensors))

            self._graphed[structure] = GraphedCallable(body, self._what, tolerance=self._tolerance, undo=self._undo)
        return self._graphed[structure](*input_tensors(inputs))


class ForwardRunner:
    """Forward passes in eval mode that change nothing, by the current model and by the source model.

    Args:
        forward: functions that run the model.
        source_tensors: tensors that make it the source model.
        execution: resolved execution options.
        processes: processes that share each batch.
        slots: buffers of the model.
    """

    def __init__(
        self,
        forward: ForwardFunctions,
        source_tensors: Mapping[str, Tensor],
        execution: Execution,
        processes: Communicator,
        slots: BufferSlots,
    ) -> None:
        def unchanging(run: RunForward, tensors: Mapping[str, Tensor] | None) -> _Pass:
            def forward_pass(inputs: Inputs) -> tuple[Tensor, Tensor]:
                try:
                    found = run(inputs, tensors)
                    return found.features, found.outputs
                finally:
                    slots.restore()

            return forward_pass

        self._processes = processes
        self._current = unchanging(forward.default, None)
        self._source = unchanging(forward.default, source_tensors)
        self._current_uncompiled = unchanging(forward.uncompiled, None)
        self._source_uncompiled = unchanging(forward.uncompiled, source_tensors)
        if execution.capture:
            tolerance = TOLERANCES[execution.precision]
            self._current = GraphedForward(self._current, "A prediction", tolerance=tolerance)
            self._source = GraphedForward(self._source, "A pass of the source model", tolerance=tolerance)

    @torch.no_grad()
    def local(self, inputs: Inputs) -> Forward:
        """Run the current model on samples of this process only."""
        return Forward(*self._current(inputs))

    def current(self, shard: Shard) -> Forward:
        """Run the current model and return the results for the samples of all processes."""
        return self._gathered(self._current if shard.whole else self._current_uncompiled, shard)

    def source(self, shard: Shard) -> Forward:
        """Run the source model and return the results for the samples of all processes."""
        return self._gathered(self._source if shard.whole else self._source_uncompiled, shard)

    @torch.no_grad()
    def _gathered(self, run: _Pass, shard: Shard) -> Forward:
        if self._processes.size == 1:
            return Forward(*run(shard.inputs))
        local = run_on_rows(lambda inputs: Forward(*run(inputs)), shard.inputs)
        return Forward(*(self._processes.gather(rows, shard.counts) for rows in (local.features, local.outputs)))


def run_on_rows(forward: Callable[[Inputs], Forward], inputs: Inputs) -> Forward:
    """Run a forward pass on any number of rows; for none, run it on a dummy row and drop the result.

    A process without samples thereby takes part in the collective operations of the pass.
    """
    if len(inputs):
        return forward(inputs)
    dummy = forward(dummy_sample(inputs))
    return Forward(dummy.features[:0], dummy.outputs[:0])


def _has_hooks(model: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind) for module in model.modules() for kind in kinds)
