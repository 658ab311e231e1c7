"""One learning step on a batch: forward pass, loss, gradient, update. It can be undone exactly."""

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regtta.engine.custom_optimizer_state import CustomOptimizerState
from regtta.engine.flat_optimizer_state import FlatOptimizerState
from regtta.engine.forward import ForwardFunctions, Shard
from regtta.engine.optimizer import FlatGradients, OptimizerStep, total_distance, total_norm
from regtta.engine.rollback import AdaptableState, OptimizerSnapshot
from regtta.engine.validation import STATE_FORMAT, LearnerParts, OptimizerState
from regtta.errors import OptionError
from regtta.execution import SINGLE_PROCESS, Communicator
from regtta.guards import StepStats
from regtta.methods import Batch, Buffered, Method, MethodContext, NewHead, Rule, Skip, Update
from regtta.models import BatchNormSwitch, BufferSlots, Forward, assign_tensor, batch_norm_layers, recurrent_training

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepResult:
    """Result of one learning step that has been neither committed nor rolled back.

    Attributes:
        stats: measurements of the step.
        skipped: reason why the method changed nothing; empty if it did.
        buffered: reason why the method only stored the batch; empty if it took a step.
    """

    stats: StepStats
    skipped: str = ""
    buffered: str = ""


@dataclass(frozen=True)
class TakenStep:
    """Step that was taken; ``numbers`` of a GPU have not been transferred yet."""

    forward: Forward
    update: Update
    numbers: "Tensor | list[float]"


class Learner:
    """Carries a method out on one model: its rule, its optimizer and BatchNorm. Created with the source model.

    Args:
        forward: functions that run the model.
        state: the tensors that adaptation changes.
        method: the method.
        context: information for the start of a stream.
        slots: buffers of the model.
        processes: processes that share each batch.
        compiled: True if steps are compiled or captured, so that all must perform the same operations.

    Attributes:
        is_captured: True if steps are captured as CUDA graphs, which optimizers must know.
        displacement: current relative displacement of the parameters, ``‖θ − θ₀‖ / ‖θ₀‖``.
        steps: gradient steps per batch.
    """

    is_captured = False

    def __init__(
        self,
        forward: ForwardFunctions,
        state: AdaptableState,
        method: Method,
        context: MethodContext,
        slots: BufferSlots,
        *,
        processes: Communicator = SINGLE_PROCESS,
        compiled: bool = False,
    ) -> None:
        self._forward = forward
        self._slots = slots
        self.state = state
        self.method = method
        self.context = context
        self._processes = processes
        self._schedule = schedule = method.schedule
        self.steps = schedule.steps
        self.batch_norm = BatchNormSwitch(
            batch_norm_layers(context.model),
            schedule.batch_norm,
            schedule.prior,
            momentum=schedule.bn_momentum,
            constant_operations=compiled,
        )
        self.rule: Rule = method.start(context)
        self._stateless = self.rule.capturable
        self._initial_rule = copy.deepcopy(self.rule.state_dict())
        self._training: AbstractContextManager[object] = recurrent_training(context.model)
        if self.rule.recordings:  # compiled code calls no recorder
            self._forward = ForwardFunctions(forward.uncompiled, forward.uncompiled)
            self._training = _Together((self._training, *self.rule.recordings))
        self._gradients = FlatGradients(state.trainable_flats)
        self.reset()

    @property
    def min_batch_size(self) -> int:
        """Smallest batch size that can be learned from."""
        return 1 if self.method.supports_single_samples and not self.batch_norm.needs_batches else 2

    @property
    def never_adapts(self) -> str:
        """Reason why no batch is learned from, for a method that adapts nothing; empty for others."""
        return "" if self.method.adapts else _changes_nothing(self.method)

    def reset(self) -> None:
        """Return to the source model, with a new optimizer and the initial state of the rule."""
        self.batch_norm.load_state_dict({"updates": 0, "samples": 0})
        self._optimizer_state: OptimizerState | None = None
        self._optimizer = self._make_optimizer()
        optimizer, fixed = self._optimizer, self._schedule.elementwise
        self._snapshot = None if optimizer is None else OptimizerSnapshot(optimizer.optimizer, fixed_options=fixed)
        self.state.load(self.state.origin)
        self.rule.load_state_dict(copy.deepcopy(self._initial_rule))
        self.displacement = 0.0

    # --- one step --------------------------------------------------------------------------------

    def step(self, shard: Shard, *, repeated: bool = False) -> StepResult:
        """Take one step on a batch; :meth:`commit` or :meth:`rollback` must follow.

        Args:
            shard: the samples.
            repeated: True for a further step on the samples of the previous one.

        Raises:
            Any error of the model or the method, after a rollback.
        """
        self.state.save_snapshot()
        if self._snapshot is not None:
            self._snapshot.save_snapshot()
        self._rule_before = {} if self._stateless else copy.deepcopy(self.rule.state_dict())
        self._counts_before = {"updates": self.batch_norm.updates, "samples": self.batch_norm.samples}
        if self.batch_norm.statistics is not None:
            self.batch_norm.set_weights(len(shard.inputs))
        try:
            taken = self._take(shard, repeated)
            numbers = taken.numbers.tolist() if isinstance(taken.numbers, Tensor) else taken.numbers
        except BaseException:
            self.rollback()
            raise
        distance, largest, features, outputs, *rest = numbers
        loss, gradient_norm = rest if rest else (None, None)
        # A sum is finite only if all values are, unless it overflows.
        finite = math.isfinite(largest) and (math.isfinite(features + outputs) or _is_finite(taken.forward))
        stats = StepStats(loss, gradient_norm, distance / self.state.initial_norm, finite, taken.forward)
        skipped = taken.update.reason if isinstance(taken.update, Skip) else ""
        if taken.update is None and self.batch_norm.mode == "source":
            skipped = _changes_nothing(self.method)
        return StepResult(stats, skipped, taken.update.reason if isinstance(taken.update, Buffered) else "")

    def commit(self, result: StepResult) -> None:
        """Accept the last step."""
        self.displacement = result.stats.displacement

    def rollback(self) -> None:
        """Undo the last step exactly."""
        self._restore_tensors()
        if not self._stateless:
            self.rule.load_state_dict(self._rule_before)
        self.batch_norm.load_state_dict(self._counts_before)

    def _restore_tensors(self) -> None:
        self.state.restore_snapshot()
        if self._snapshot is not None:
            self._snapshot.restore_snapshot()

    def _take(self, shard: Shard, repeated: bool) -> TakenStep:
        """Run the model, apply the update of the rule, and measure the result."""
        found, update = self._learn(shard, repeated)
        forward = Forward(found.features.detach(), found.outputs.detach())
        if isinstance(update, NewHead):
            self._replace_head(update)
        numbers: list[Tensor] = []
        if isinstance(update, Tensor) and self._optimizer is not None:
            numbers = [update.detach(), self._optimizer.apply(update, self._processes)]
            if self._schedule.restore:
                state = self.state
                torch._foreach_lerp_(state.parameters, state.initial_parameters, self._schedule.restore)
        if self.batch_norm.statistics is not None and not self.batch_norm.finish_update():
            self._stop_compiling()
        measured = [
            total_distance(self.state.parameters, self.state.initial_parameters),
            total_norm(self.state.floating, order=math.inf),
            forward.features.sum(),
            forward.outputs.sum(),
            *numbers,
        ]
        device = forward.outputs.device
        if device.type == "cpu":  # reading one by one is faster than stacking
            return TakenStep(forward, update, list(map(float, measured)))
        return TakenStep(forward, update, torch.stack([number.to(device) for number in measured]))

    def _stop_compiling(self) -> None:
        """Run all further steps without compiling, as BatchNorm cannot be updated by the same operations each time."""
        logger.warning(
            "Steps are neither compiled nor captured: BatchNorm's statistics (%s) are weighted anew at every step, and "
            "the model calls a BatchNorm layer several times or has one that computes its statistics itself.",
            self.batch_norm.mode,
        )
        self._forward = ForwardFunctions(self._forward.uncompiled, self._forward.uncompiled)

    def _learn(self, shard: Shard, repeated: bool) -> tuple[Forward, Update]:
        """Run the model in adaptation mode and return its results with the update of the rule."""
        run = self._forward.default if shard.whole else self._forward.uncompiled
        self.batch_norm.begin_adaptation(len(shard.inputs))
        try:
            with torch.set_grad_enabled(bool(self.state.trainable)), self._training:
                found = run(shard.inputs)
                for buffers, name, registered, _ in self._slots.entries:
                    if buffers.get(name) is not registered:
                        self._slots.restore_with_values()
                        break
                extra_pass = partial(self.batch_norm.extra_pass, run)
                features = found.features if found.features.ndim == 2 else found.flat_features
                batch = Batch(shard.inputs, features, found.outputs, shard.targets, extra_pass, repeated)
                return found, self.rule.update(batch)
        finally:
            if self._slots.reassigned:
                self._slots.restore()  # buffers that further passes on the batch assigned
            self.batch_norm.end_adaptation()

    def _replace_head(self, new: NewHead) -> None:
        if not self._schedule.may_replace_head:
            raise OptionError(
                f"The rule of {self.method.name} returned a new head, but its schedule has an optimizer: a head that "
                "is replaced at a step could not be restored. Remove the optimizer from the schedule."
            )
        head = self.context.require_head()
        if all(module is not head for module in self.context.model.modules()):
            raise OptionError(
                f"The rule of {self.method.name} returned a new head, but the head of this model is not one nn.Linear. "
                "Set replaces_head = True in the method, so that this is noticed before the stream starts."
            )
        if new.weight is not None:
            assign_tensor(head, "weight", new.weight)
        if new.bias is not None and head.bias is not None:
            assign_tensor(head, "bias", new.bias)

    # --- optimizer and state ---------------------------------------------------------------------

    def _make_optimizer(self) -> OptimizerStep | None:
        schedule, trainable = self._schedule, self.state.trainable
        if schedule.optimizer is None:
            return None
        step = OptimizerStep(schedule, self._gradients, trainable.values(), capturable=self.is_captured)
        self._optimizer_state = (
            FlatOptimizerState(step.optimizer, trainable, self._gradients.flats, schedule.optimizer)
            if schedule.elementwise
            else CustomOptimizerState(step.optimizer, trainable)
        )
        return step

    def state_dict(self) -> dict[str, Any]:
        """Return copies of weights, optimizer state, rule state and counters."""
        return {
            "format": STATE_FORMAT,
            "tensors": {name: tensor.detach().clone() for name, tensor in self.state.tensors().items()},
            "optimizer": {} if self._optimizer_state is None else self._optimizer_state.read(),
            "rule": copy.deepcopy(self.rule.state_dict()),
            "batch_norm": self.batch_norm.state_dict(),
        }

    def validated_state(self, state: object, path: str) -> dict[str, Any]:
        """Return a state that can be loaded, in the current format; raise a StateError if it is invalid."""
        optimizer = self._optimizer_state
        parts = LearnerParts(self.context.model, self.state.origin, optimizer, self.rule, self.batch_norm)
        return parts.validated(state, path)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`; a state of any other origin must pass :meth:`validated_state` first."""
        self.reset()
        self.state.load(state["tensors"])
        if self._optimizer_state is not None:
            self._optimizer_state.write(state["optimizer"])
        self.rule.load_state_dict(copy.deepcopy(state["rule"]))
        self.batch_norm.load_state_dict(state["batch_norm"])
        self.displacement = self.state.displacement()


class _Together:
    """Several reusable context managers as one."""

    def __init__(self, contexts: Sequence[AbstractContextManager[object]]) -> None:
        self._contexts = contexts

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for context in self._contexts:
                stack.enter_context(context)
            self._entered = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._entered.close()


def _changes_nothing(method: Method) -> str:
    return f"{method.name} changes nothing"


def _is_finite(forward: Forward) -> bool:
    return bool(forward.features.isfinite().all() and forward.outputs.isfinite().all())
