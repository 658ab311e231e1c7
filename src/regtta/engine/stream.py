"""One stream of batches through an adapter: what guards say, what is learned, where it stands. The adapter's alone."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import torch
from torch import Tensor

from regtta.engine.callbacks import StepView
from regtta.engine.forward import Dealt, Passes
from regtta.engine.learner import Learner, StepResult
from regtta.errors import RegttaError, StateError
from regtta.execution import Processes
from regtta.guards import Guard, GuardChain, GuardContext, IncomingBatch, MarkGood, Rollback, Screened, StepStats
from regtta.models import Forward
from regtta.persistence import require_bool, require_count, require_mapping, require_str, state_error, utc_now
from regtta.types import Diagnostics, Step, Verdict


@dataclass(frozen=True)
class _Answer:
    """What came of a batch.

    Attributes:
        step: for the user.
        part: the samples that guards did not leave out.
        forward: the pass of that part which the predictions are of.
        at_source: the pass of that part by the source model, where a guard made one.
    """

    step: Step
    part: Dealt
    forward: Forward
    at_source: Forward | None = None


class Stream:
    """A learner with guards over it, from the first batch on.

    Args:
        learner: takes the steps.
        passes: predicts without learning.
        guards: rule over both.
        processes: who else has samples of each batch.

    Attributes:
        batches: how many have come.
        learned: how many of them were learned from.
        begun: when.
        moved: whether the model is another than at first.
    """

    def __init__(self, learner: Learner, passes: Passes, guards: Sequence[Guard], processes: Processes) -> None:
        self.learner = learner
        self._passes = passes
        self._guards = guards
        self._processes = processes
        self.begin()

    def begin(self) -> None:
        """What each stream starts afresh."""
        learner = self.learner
        learner.begin()
        context = GuardContext(learner.smallest, learner.context.source, learner.context.head)
        self._guard_chain = GuardChain(self._guards, context, self._processes)
        self.batches = self.learned = 0
        self.begun = utc_now()
        self.moved = False
        self._good: dict[str, Any] = {}

    def step(self, dealt: Dealt, *, frozen: bool, sight: bool) -> tuple[Step, StepView | None]:
        """Learn from a batch if the guards let it be; and, where asked for, how both models see it."""
        answer = self._refused_step(dealt, "frozen by hand") if frozen else self._guarded_step(dealt)
        self.batches += 1
        self.learned += answer.step.diagnostics.verdict.learned
        if not sight:
            return answer.step, None
        # The source model's pass is made anew only where nobody has made it.
        source = answer.forward if not self.moved else answer.at_source or self._passes.source(answer.part)
        return answer.step, StepView(answer.step, answer.forward, source)

    def return_to(self, where: Literal["source", "good"]) -> Literal["source", "good"]:
        """Take the model back; says to where, since there may be no good one."""
        if where == "good" and self._good:
            self.learner.load_state_dict(self._good)
        else:
            where, self._good = "source", {}
            self.learner.begin()
        self.moved = where == "good"
        self._guard_chain.on_rollback()
        return where

    def state_dict(self) -> dict[str, Any]:
        """Where it stands."""
        return {
            "index": self.batches,
            "learned": self.learned,
            "begun": self.begun,
            "moved": self.moved,
            "learner": self.learner.state_dict(),
            "watches": self._guard_chain.state_dict(),
            "good": copy.deepcopy(self._good),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, or raise a StateError that names what is wrong with it and stay exactly as it was."""
        valid = self._validated(state)
        before = self.state_dict()
        try:
            self._restore(valid)
        except BaseException as error:  # a rule, guard or optimizer of the user's own may raise anything
            self._restore(before)
            if isinstance(error, RegttaError) or not isinstance(error, Exception):
                raise
            raise StateError(
                f"The state cannot be resumed: the method, a guard or the optimizer does not take it "
                f"({type(error).__name__}: {error}). Put back a copy of the file it comes from, or begin anew."
            ) from error

    def _validated(self, state: object) -> dict[str, Any]:
        """Return a state that can be loaded, its learners' in the format of now; nothing changes."""
        keys = ("index", "learned", "begun", "moved", "learner", "watches", "good")
        found = dict(require_mapping("", state, keys))
        require_count("learned", found["learned"], maximum=require_count("index", found["index"]))
        require_bool("moved", found["moved"])
        try:
            datetime.fromisoformat(require_str("begun", found["begun"]))
        except ValueError as error:
            raise state_error("begun", "a time", found["begun"]) from error
        self._guard_chain.validate_state(found["watches"], "watches")
        found["learner"] = self.learner.validated_state(found["learner"], "learner")
        if require_mapping("good", found["good"]):
            found["good"] = self.learner.validated_state(found["good"], "good")
        return found

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.begin()
        self.learner.load_state_dict(state["learner"])
        self._guard_chain.load_state_dict(state["watches"])
        self.batches, self.learned, self.begun = state["index"], state["learned"], state["begun"]
        self.moved = state["moved"]
        self._good = copy.deepcopy(dict(state["good"]))

    def _guarded_step(self, dealt: Dealt) -> _Answer:
        screened = self._guard_chain.screen(self._arrived(dealt))
        if screened.nothing_left:
            return self._refused_step(dealt, screened.reasons[0], screened.excluded_rows)
        batch, part, left_out = screened.batch, *_split(dealt, screened)
        unlearned = None if left_out is None else self._predicted(left_out)
        ruling = self._guard_chain.before_step(batch) or self.learner.never_learns
        if ruling is None:
            attempt = self.learner.learn(part, self._guard_chain.after_step)
        else:
            attempt = StepResult(StepStats(), stands=False, ruling=ruling)
        at_source, returned = batch.seen_at_source, ""
        if attempt.stands:
            self.moved = True
        if isinstance(attempt.ruling, MarkGood):
            self._good = self.learner.state_dict()
        if isinstance(attempt.ruling, Rollback):
            returned = self.return_to(attempt.ruling.to)
            batch = self._arrived(part)
            unlearned = None if left_out is None else self._predicted(left_out)
        learned_from = attempt.stats.forward if attempt.stands else None
        answered = learned_from or batch.current
        predictions = screened.joined(self._passes.own(answered.outputs, part), unlearned)
        step = self._described(attempt, predictions, returned, screened.excluded_rows)
        return _Answer(step, part, answered, at_source)

    def _arrived(self, dealt: Dealt) -> IncomingBatch:
        def part(inputs: Tensor, counts: Sequence[int]) -> Dealt:
            return Dealt(inputs, None, counts, whole=dealt.whole and sum(counts) == sum(dealt.counts))

        return IncomingBatch(
            dealt.inputs,
            lambda inputs, counts: self._passes.current(part(inputs, counts)),
            lambda inputs, counts: self._passes.source(part(inputs, counts)),
            moved=self.moved,
            processes=self._processes,
            counts=dealt.counts,
        )

    def _predicted(self, dealt: Dealt) -> Tensor:
        """Predictions of this process's samples in eval mode."""
        return self._passes.own(self._passes.current(dealt).outputs, dealt)

    def _refused_step(self, dealt: Dealt, reason: str, excluded_rows: tuple[int, ...] = ()) -> _Answer:
        """Predict a batch that is not learned from, and that no guard has to look at."""
        forward = self._passes.current(dealt)
        attempt = StepResult(StepStats(), stands=False, ruling=reason)
        predictions = self._passes.own(forward.outputs, dealt)
        return _Answer(self._described(attempt, predictions, "", excluded_rows), dealt, forward)

    def _described(
        self, attempt: StepResult, predictions: Tensor, returned: str, excluded_rows: tuple[int, ...] = ()
    ) -> Step:
        ruling, stats = attempt.ruling, attempt.stats
        reason = ruling.reason if isinstance(ruling, Rollback) else ruling if isinstance(ruling, str) else ""
        verdict = Verdict(learned=not reason, reason=reason, returned=returned)
        diagnostics = Diagnostics(stats.loss, stats.gradient_norm, self.learner.displacement, verdict)
        return Step(self.batches, predictions, diagnostics, excluded_rows)


def _split(dealt: Dealt, screened: Screened) -> tuple[Dealt, Dealt | None]:
    """The samples of a batch that are learned from, and those that are left out, where there are any."""
    if screened.kept is None:
        return dealt, None
    kept, counts = screened.kept, screened.batch.counts
    others = [all_ - left for all_, left in zip(dealt.counts, counts, strict=True)]
    rows = torch.tensor(screened.excluded_rows, dtype=torch.int64, device=kept.device)
    targets = dealt.targets
    if targets is not None and len(targets) == len(dealt.inputs):  # else the method says what is wrong with them
        targets = targets[kept.to(targets.device)]
    part = Dealt(screened.batch.inputs, targets, counts, whole=False)
    return part, Dealt(dealt.inputs[rows], None, others, whole=False)
