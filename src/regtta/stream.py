"""One stream of batches through an adapter: what guards say, what is learned, where it stands. The adapter's alone."""

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from torch import Tensor

from regtta.errors import RegttaError, StateError
from regtta.features import Forward
from regtta.guards import Arrival, Guard, Keep, Outcome, Panel, Post, Rollback
from regtta.learning import Attempt, Learner
from regtta.processes import Processes
from regtta.provenance import utc_now
from regtta.running import Dealt, Passes
from regtta.sight import Sight
from regtta.state_validation import invalid, require_count, require_flag, require_mapping, require_text
from regtta.steps import Diagnostics, Step, Verdict


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
        post = Post(learner.smallest, learner.stage.source, learner.stage.head)
        self._panel = Panel(self._guards, post, self._processes)
        self.batches = self.learned = 0
        self.begun = utc_now()
        self.moved = False
        self._good: dict[str, Any] = {}

    def step(self, dealt: Dealt, *, frozen: bool, sight: bool) -> tuple[Step, Sight | None]:
        """Learn from a batch if the guards let it be; and, where asked for, how both models see it."""
        step, answered, at_source = self._frozen_step(dealt) if frozen else self._guarded_step(dealt)
        self.batches += 1
        self.learned += step.diagnostics.verdict.learned
        if not sight:
            return step, None
        # The source model's pass is made anew only where nobody has made it.
        source = answered if not self.moved else at_source or self._passes.source(dealt)
        return step, Sight(step, answered, source)

    def return_to(self, where: Literal["source", "good"]) -> Literal["source", "good"]:
        """Take the model back; says to where, since there may be no good one."""
        if where == "good" and self._good:
            self.learner.load_state_dict(self._good)
        else:
            where, self._good = "source", {}
            self.learner.begin()
        self.moved = where == "good"
        self._panel.returned()
        return where

    def state_dict(self) -> dict[str, Any]:
        """Where it stands."""
        return {
            "index": self.batches,
            "learned": self.learned,
            "begun": self.begun,
            "moved": self.moved,
            "learner": self.learner.state_dict(),
            "watches": self._panel.state_dict(),
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
        require_count("learned", found["learned"], most=require_count("index", found["index"]))
        require_flag("moved", found["moved"])
        try:
            datetime.fromisoformat(require_text("begun", found["begun"]))
        except ValueError as error:
            raise invalid("begun", "a time", found["begun"]) from error
        self._panel.validate_state(found["watches"], "watches")
        found["learner"] = self.learner.validated_state(found["learner"], "learner")
        if require_mapping("good", found["good"]):
            found["good"] = self.learner.validated_state(found["good"], "good")
        return found

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.begin()
        self.learner.load_state_dict(state["learner"])
        self._panel.load_state_dict(state["watches"])
        self.batches, self.learned, self.begun = state["index"], state["learned"], state["begun"]
        self.moved = state["moved"]
        self._good = copy.deepcopy(dict(state["good"]))

    def _guarded_step(self, dealt: Dealt) -> tuple[Step, Forward, Forward | None]:
        """The step, the pass that its predictions are of, and the source model's where a guard made one."""
        arrival = Arrival(
            dealt.inputs,
            lambda: self._passes.current(dealt),
            lambda: self._passes.source(dealt),
            moved=self.moved,
            processes=self._processes,
            counts=dealt.counts,
        )
        ruling = self._panel.admits(arrival)
        if ruling is None:
            attempt = self.learner.learn(dealt, self._panel.judge)
        else:
            attempt = Attempt(Outcome(), stands=False, ruling=ruling)
        at_source, returned = arrival.seen_at_source, ""
        if attempt.stands:
            self.moved = True
        if isinstance(attempt.ruling, Keep):
            self._good = self.learner.state_dict()
        if isinstance(attempt.ruling, Rollback):
            returned = self.return_to(attempt.ruling.to)
            arrival = Arrival(dealt.inputs, lambda: self._passes.current(dealt))
        learned_from = attempt.outcome.forward if attempt.stands else None
        answered = learned_from or arrival.current
        return self._described(attempt, self._passes.own(answered.outputs, dealt), returned), answered, at_source

    def _frozen_step(self, dealt: Dealt) -> tuple[Step, Forward, None]:
        answered = self._passes.current(dealt)
        attempt = Attempt(Outcome(), stands=False, ruling="frozen by hand")
        return self._described(attempt, self._passes.own(answered.outputs, dealt), ""), answered, None

    def _described(self, attempt: Attempt, predictions: Tensor, returned: str) -> Step:
        ruling, outcome = attempt.ruling, attempt.outcome
        reason = ruling.reason if isinstance(ruling, Rollback) else ruling if isinstance(ruling, str) else ""
        verdict = Verdict(learned=not reason, reason=reason, returned=returned)
        diagnostics = Diagnostics(outcome.loss, outcome.gradient_norm, self.learner.displacement, verdict)
        return Step(self.batches, predictions, diagnostics)
