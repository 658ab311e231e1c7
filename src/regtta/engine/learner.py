"""One step of learning from a batch, which can be undone exactly. The adapter is the only one to use it."""

import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regtta.engine.custom_optimizer_state import CustomOptimizerState
from regtta.engine.flat_optimizer_state import FlatOptimizerState
from regtta.engine.forward import TOLERANCES, Dealt, Runners, on_rows
from regtta.engine.rollback import MovingParts, OptimizerMemory
from regtta.engine.validation import STATE_FORMAT, LearnerParts, OptimizerState
from regtta.errors import OptionError
from regtta.execution import ALONE, PLAIN, Execution, Processes, Replay, Shares, bare_step
from regtta.guards import MarkGood, Rollback, Ruling, StepStats
from regtta.methods import Batch, Buffered, Method, MethodContext, NewHead, Rule, Skip, Update
from regtta.models import BatchNormSwitch, BufferSlots, Forward, assign_tensor, batch_norm_layers

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepResult:
    """What came of a step.

    Attributes:
        stats: its numbers.
        stands: whether what it changed was kept.
        ruling: of the guards, or why the method itself took no step; ``None`` where it stands.
    """

    stats: StepStats
    stands: bool
    ruling: Ruling


@dataclass(frozen=True)
class _Taken:
    """A step that was taken and not looked at yet; ``numbers`` of a GPU are still there."""

    forward: Forward
    update: Update
    numbers: "Tensor | list[float]"


class Learner:
    """Carries a method out on one model: its rule, its optimizer, BatchNorm. Made while the model is as trained.

    Args:
        runners: run the model.
        parts: what may move.
        method: how to adapt.
        context: what a stream begins with.
        slots: of the model's buffers.
        processes: who else has samples of each batch.
        execution: how it is carried out.

    Attributes:
        displacement: of the parameters now, ``‖θ − θ₀‖ / ‖θ₀‖``.
    """

    def __init__(
        self,
        runners: Runners,
        parts: MovingParts,
        method: Method,
        context: MethodContext,
        slots: BufferSlots,
        *,
        processes: Processes = ALONE,
        execution: Execution = PLAIN,
    ) -> None:
        self._runners = runners
        self._slots = slots
        self.parts = parts
        self.method = method
        self.context = context
        self._processes = processes
        self._schedule = schedule = method.schedule
        self.batch_norm = BatchNormSwitch(batch_norm_layers(context.model), schedule.batch_norm, schedule.prior)
        self.rule: Rule = method.start(context)
        self._rule_at_first = copy.deepcopy(self.rule.state_dict())
        self._replay = self._replayed(execution) if execution.capture else None
        self.begin()

    @property
    def smallest(self) -> int:
        """The fewest samples that can be learned from."""
        return 1 if self.method.supports_single_samples and not self.batch_norm.needs_batches else 2

    @property
    def never_learns(self) -> str | None:
        """Why no batch is learned from, where the method adapts nothing; ``None`` where it does."""
        return None if self.method.adapts else _changes_nothing(self.method)

    def begin(self) -> None:
        """Everything as it was at first."""
        self.batch_norm.load_state_dict({"updates": 0, "samples": 0})
        self._optimizer_state: OptimizerState | None = None
        self.optimizer = self._new_optimizer()
        fixed = self._schedule.elementwise
        self._undo = None if self.optimizer is None else OptimizerMemory(self.optimizer, fixed_options=fixed)
        if self._replay is not None:
            self._replay.forget()  # it steps by the optimizer before
        self.parts.load(self.parts.origin)
        self.rule.load_state_dict(copy.deepcopy(self._rule_at_first))
        self.displacement = 0.0

    def learn(self, dealt: Dealt, after_step: Callable[[StepStats], Ruling]) -> StepResult:
        """The first of the batch's steps; the others follow as long as none is refused."""
        first = self._attempt(dealt, after_step)
        for _ in range(self._schedule.steps - 1):
            if _refused(first.ruling):
                break
            further = self._attempt(dealt, after_step, again=True).ruling
            if isinstance(further, Rollback | MarkGood):
                first = replace(first, ruling=further)
            elif further is not None:
                break
        return first

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, rule and counts, copied."""
        return {
            "format": STATE_FORMAT,
            "tensors": {name: tensor.detach().clone() for name, tensor in self.parts.tensors().items()},
            "optimizer": {} if self._optimizer_state is None else self._optimizer_state.read(),
            "rule": copy.deepcopy(self.rule.state_dict()),
            "batch_norm": self.batch_norm.state_dict(),
        }

    def validated_state(self, state: object, path: str) -> dict[str, Any]:
        """Return a state that can be loaded, in the format of now; raise a StateError for any other."""
        kept = self._optimizer_state
        parts = LearnerParts(self.context.model, self.parts.origin, kept, self.rule, self.batch_norm)
        return parts.validated(state, path)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, which :meth:`validated_state` has seen if it comes from anywhere else."""
        self.begin()
        self.parts.load(state["tensors"])
        if self._optimizer_state is not None:
            self._optimizer_state.write(state["optimizer"])
        self.rule.load_state_dict(copy.deepcopy(state["rule"]))
        self.batch_norm.load_state_dict(state["batch_norm"])
        self.displacement = self.parts.displacement()

    # --- a step ----------------------------------------------------------------------------------

    def _attempt(self, dealt: Dealt, after_step: Callable[[StepStats], Ruling], *, again: bool = False) -> StepResult:
        """One step, taken back whole if it is refused or breaks off."""
        rule, counts = copy.deepcopy(self.rule.state_dict()), self.batch_norm.state_dict()
        self.parts.remember()
        if self._undo is not None:
            self._undo.remember()
        stands = False
        try:
            self.batch_norm.count(sum(dealt.counts))
            taken = self._take(dealt, again=again)
            stats, reason = self._outcome(taken), self._nothing_done(taken.update)
            ruling = reason if reason is not None else after_step(stats)
            stands = not _refused(ruling)
            if stands and isinstance(taken.update, Buffered):
                ruling = taken.update.reason
            self.displacement = stats.displacement if stands else self.displacement
        finally:
            if not stands:
                self._put_back()
                self.rule.load_state_dict(rule)
                self.batch_norm.load_state_dict(counts)
        return StepResult(stats, stands, ruling)

    def _take(self, dealt: Dealt, *, again: bool) -> _Taken:
        if self._replay is None or not dealt.whole:
            return self._take_plainly(dealt, again=again)
        features, outputs, numbers = self._replay(dealt.inputs)
        return _Taken(Forward(features, outputs), None if self.optimizer is None else numbers[-2], numbers)

    def _replayed(self, execution: Execution) -> Replay | None:
        """The step as one function of the batch, where every step does the same; else None, and the log says why."""
        why = ""
        if not self.rule.capturable:
            why = f"those of {self.method.name} with these options are not all the same"
        elif self._schedule.optimizer is not None and not self._schedule.elementwise:
            why = "the optimizer is one of your own, which may do something else at every step"
        if why:
            logger.warning("Steps are not captured: %s.", why)
            return None

        def step(inputs: Tensor) -> tuple[Tensor, ...]:
            taken = self._take_plainly(Dealt(inputs, None, [len(inputs)]), again=False)
            numbers = taken.numbers if isinstance(taken.numbers, Tensor) else torch.tensor(taken.numbers)
            return taken.forward.features, taken.forward.outputs, numbers

        return Replay(step, "A step", tolerance=TOLERANCES[execution.precision], undo=self._put_back)

    def _take_plainly(self, dealt: Dealt, *, again: bool) -> _Taken:
        """Ask the rule, and carry its answer out."""
        forward, update = self._ask_rule(dealt, again=again)
        numbers = self._carry_out(update)
        seen = Forward(forward.features.detach(), forward.outputs.detach())
        return _Taken(seen, update, self._measured(seen, numbers))

    def _put_back(self) -> None:
        self.parts.restore()
        if self._undo is not None:
            self._undo.restore()

    def _ask_rule(self, dealt: Dealt, *, again: bool) -> tuple[Forward, Update]:
        processes, counts = self._processes, dealt.counts
        self.batch_norm.switch(sum(counts), Shares(processes, empty=len(dealt.inputs) == 0))
        forward = self._runners.usual if dealt.whole else self._runners.odd
        run = forward if processes.size == 1 else partial(on_rows, forward)
        try:
            with torch.set_grad_enabled(bool(self.parts.trainable)):
                local = run(dealt.inputs)
                self._slots.restore_with_values()
                seen = Forward(processes.gather(local.features, counts), processes.gather(local.outputs, counts))
                targets = None if dealt.targets is None else processes.gather(dealt.targets, counts)
                batch = Batch(
                    dealt.inputs,
                    seen.features,
                    seen.outputs,
                    targets,
                    partial(self.batch_norm.extra_pass, run),
                    again,
                    gather=lambda values: processes.gather(values, counts),
                )
                return seen, self.rule.update(batch)
        finally:
            self._slots.restore()  # what further passes on the batch assigned
            self.batch_norm.predicting()

    def _carry_out(self, update: Update) -> list[Tensor]:
        """What the rule answered; loss and norm of the gradient where there is one."""
        if isinstance(update, NewHead):
            self._replace_head(update)
        if not isinstance(update, Tensor) or self.optimizer is None:
            return []
        gradients, size = self.parts.gradients, self._processes.size
        gradients.take(update if size == 1 else update / size)
        if not self._schedule.elementwise:
            gradients.hand_out()
        if size > 1:
            for gradient in gradients:
                gradient.copy_(self._processes.reduce(gradient))
        norm = gradients.norm()
        self._descend()
        return [update.detach(), norm]

    def _measured(self, forward: Forward, numbers: list[Tensor]) -> "Tensor | list[float]":
        """All numbers of a step, as one tensor where they are to be read from a device at once."""
        features, outputs = forward.features.sum(), forward.outputs.sum()
        read = [self.parts.distance(), self.parts.largest(), features, outputs, *numbers]
        if outputs.device.type == "cpu":  # where reading one by one costs less than putting them together
            return [float(number) for number in read]
        return torch.stack([number.to(outputs.device) for number in read])

    def _outcome(self, taken: _Taken) -> StepStats:
        read = taken.numbers.tolist() if isinstance(taken.numbers, Tensor) else taken.numbers
        distance, largest, features, outputs, *rest = read
        loss, gradient_norm = rest if rest else (None, None)
        # A sum is finite only if all of it is, or it is too large to be of use.
        finite = math.isfinite(largest) and (math.isfinite(features + outputs) or _finite(taken.forward))
        return StepStats(loss, gradient_norm, distance / self.parts.began_norm, finite, taken.forward)

    def _nothing_done(self, update: Update) -> str | None:
        """Why there was nothing to carry out, where there was nothing."""
        if isinstance(update, Skip):
            return update.reason
        if update is None and self.batch_norm.mode == "source":
            return _changes_nothing(self.method)
        return None

    def _replace_head(self, new: NewHead) -> None:
        if not self._schedule.may_replace_head:
            raise OptionError(
                f"The rule of {self.method.name} gave a new head, and its schedule has an optimizer: a head that is "
                "replaced at a step could not be put back. Leave the optimizer out of the schedule."
            )
        head = self.context.require_head()
        assign_tensor(head, "weight", new.weight)
        if new.bias is not None and head.bias is not None:
            assign_tensor(head, "bias", new.bias)

    def _new_optimizer(self) -> torch.optim.Optimizer | None:
        schedule = self._schedule
        if schedule.optimizer is None:
            return None
        together = self.parts.gradients.steppable if schedule.elementwise else self.parts.trainable.values()
        optimizer = schedule.optimizer(together)
        self._make_capturable(optimizer.param_groups)
        self._descend = bare_step(optimizer) if schedule.elementwise else optimizer.step
        trainable, flats = self.parts.trainable, self.parts.gradients.flats
        self._optimizer_state = (
            FlatOptimizerState(optimizer, trainable, flats, schedule.optimizer)
            if schedule.elementwise
            else CustomOptimizerState(optimizer, trainable)
        )
        return optimizer

    def _make_capturable(self, groups: Sequence[dict[str, Any]]) -> None:
        for group in groups:
            if "capturable" in group:
                group["capturable"] = self._replay is not None


def _changes_nothing(method: Method) -> str:
    return f"{method.name} changes nothing"


def _refused(ruling: Ruling) -> bool:
    return isinstance(ruling, str | Rollback)


def _finite(forward: Forward) -> bool:
    return bool(forward.features.isfinite().all() and forward.outputs.isfinite().all())
