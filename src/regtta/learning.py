"""One step of learning from a batch, which can be undone exactly. The adapter is the only one to use it."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regtta.batch_norm import BatchNormSwitch, batch_norms
from regtta.features import Forward, RunForward
from regtta.guards import Keep, Outcome, Rollback, Ruling
from regtta.methods import Batch, Method, NewHead, Remember, Rule, Skip, Stage, Update
from regtta.moving import MovingParts, OptimizerMemory


@dataclass(frozen=True)
class Attempt:
    """What came of a step.

    Attributes:
        outcome: its numbers.
        stands: whether what it changed was kept.
        ruling: of the guards, or why the method itself took no step; ``None`` where it stands.
    """

    outcome: Outcome
    stands: bool
    ruling: Ruling


class Learner:
    """Carries a method out on one model: its rule, its optimizer, BatchNorm. Made while the model is as trained.

    Args:
        forward: runs the model.
        parts: what may move.
        method: how to adapt.
        stage: what a stream begins with.

    Attributes:
        displacement: of the parameters now, ``‖θ − θ₀‖ / ‖θ₀‖``.
    """

    def __init__(self, forward: RunForward, parts: MovingParts, method: Method, stage: Stage) -> None:
        self.forward = forward
        self.parts = parts
        self.method = method
        self.stage = stage
        schedule = method.schedule
        self.batch_norm = BatchNormSwitch(batch_norms(stage.model), schedule.batch_norm, schedule.prior)
        self.rule: Rule = method.start(stage)
        self._rule_at_first = copy.deepcopy(self.rule.state_dict())
        self.begin()

    @property
    def smallest(self) -> int:
        """The fewest samples that can be learned from."""
        return 1 if self.method.learns_from_one and not self.batch_norm.needs_batches else 2

    def begin(self) -> None:
        """Everything as it was at first."""
        schedule = self.method.schedule
        self.batch_norm.load_state_dict({"updates": 0, "samples": 0})
        self.optimizer = schedule.optimizer(self.parts.trainable.values()) if schedule.optimizer else None
        self._undo = None if self.optimizer is None else OptimizerMemory(self.optimizer)
        self.parts.load(self.parts.origin)
        self.rule.load_state_dict(copy.deepcopy(self._rule_at_first))
        self.displacement = 0.0

    def learn(self, inputs: Tensor, targets: Tensor | None, judge: Callable[[Outcome], Ruling]) -> Attempt:
        """The first of the batch's steps; the others follow as long as none is refused."""
        first = self._attempt(inputs, targets, judge)
        for _ in range(self.method.schedule.steps - 1):
            if _refused(first.ruling):
                break
            further = self._attempt(inputs, targets, judge, again=True).ruling
            if isinstance(further, Rollback | Keep):
                first = replace(first, ruling=further)
            elif further is not None:
                break
        return first

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, rule and counts, copied."""
        return {
            "tensors": {name: tensor.detach().clone() for name, tensor in self.parts.tensors().items()},
            "optimizer": copy.deepcopy(self.optimizer.state_dict()) if self.optimizer else {},
            "rule": copy.deepcopy(self.rule.state_dict()),
            "batch_norm": self.batch_norm.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self.begin()
        self.parts.load(state["tensors"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.rule.load_state_dict(copy.deepcopy(state["rule"]))
        self.batch_norm.load_state_dict(state["batch_norm"])
        self.displacement = float(self.parts.displacement())

    def _attempt(
        self, inputs: Tensor, targets: Tensor | None, judge: Callable[[Outcome], Ruling], *, again: bool = False
    ) -> Attempt:
        """One step, taken back whole if it is refused or breaks off."""
        undo = self._remember()
        stands = False
        try:
            forward, update = self._ask_rule(inputs, targets, again=again)
            outcome, reason = self._descend(forward, update)
            ruling = reason if reason is not None else judge(outcome)
            stands = not _refused(ruling)
            if stands and isinstance(update, Remember):
                ruling = update.reason
            self.displacement = outcome.displacement if stands else self.displacement
        finally:
            if not stands:
                undo()
        return Attempt(outcome, stands, ruling)

    def _remember(self) -> Callable[[], None]:
        """Keep everything as it is; gives back what makes it so again."""
        self.parts.remember()
        if self._undo is not None:
            self._undo.remember()
        rule, counts = copy.deepcopy(self.rule.state_dict()), self.batch_norm.state_dict()

        def undo() -> None:
            self.parts.restore()
            if self._undo is not None:
                self._undo.restore()
            self.rule.load_state_dict(rule)
            self.batch_norm.load_state_dict(counts)

        return undo

    def _ask_rule(self, inputs: Tensor, targets: Tensor | None, *, again: bool) -> tuple[Forward, Update]:
        self.batch_norm.adapting(len(inputs))
        try:
            with torch.set_grad_enabled(bool(self.parts.trainable)):
                forward = self.forward(inputs)
                batch = Batch(inputs, forward.features, forward.outputs, targets, self.forward, again)
                return forward, self.rule.update(batch)
        finally:
            self.batch_norm.predicting()

    def _descend(self, forward: Forward, update: Update) -> tuple[Outcome, str | None]:
        """Carry the rule's answer out; its numbers, and the reason where there is nothing to carry out."""
        reason, numbers = None, []
        if isinstance(update, Tensor) and self.optimizer is not None:
            self.optimizer.zero_grad()
            update.backward()  # type: ignore[no-untyped-call]
            gradients = [p.grad for p in self.parts.trainable.values() if p.grad is not None]
            numbers = [update.detach(), nn.utils.get_total_norm(gradients)]
            self.optimizer.step()
        elif isinstance(update, Skip):
            reason = update.reason
        elif isinstance(update, NewHead):
            self._replace_head(update)
        elif update is None and self.batch_norm.mode == "source":
            reason = f"{self.method.name} changes nothing"
        return self._outcome(forward, numbers), reason

    def _outcome(self, forward: Forward, numbers: list[Tensor]) -> Outcome:
        """All numbers of a step in one read from the device."""
        seen = Forward(forward.features.detach(), forward.outputs.detach())
        finite = torch.stack([seen.features.isfinite().all(), seen.outputs.isfinite().all()]).all()
        read = [self.parts.displacement(), self.parts.largest(), finite, *numbers]
        displacement, largest, sound, *rest = torch.stack([n.to(finite.device, torch.float64) for n in read]).tolist()
        loss, gradient_norm = rest if rest else (None, None)
        return Outcome(loss, gradient_norm, displacement, bool(sound) and math.isfinite(largest), seen)

    def _replace_head(self, new: NewHead) -> None:
        head = self.stage.require_head()
        with torch.no_grad():
            head.weight.copy_(new.weight)
            if new.bias is not None and head.bias is not None:
                head.bias.copy_(new.bias)


def _refused(ruling: Ruling) -> bool:
    return isinstance(ruling, str | Rollback)
