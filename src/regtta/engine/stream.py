"""The loop over the batches of a stream: guards before the step, the step, guards after it, commit or rollback."""

import copy
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import torch
from torch import Tensor

from regtta.engine.forward import ForwardRunner, Shard
from regtta.engine.learner import Learner, StepResult
from regtta.engine.unlearned import FROZEN, MAX_UNLEARNED, describe_unlearned
from regtta.errors import RegttaError, StateError
from regtta.execution import Communicator
from regtta.guards import (
    Guard,
    GuardChain,
    GuardContext,
    IncomingBatch,
    MarkGood,
    Rollback,
    Ruling,
    Screened,
    StepStats,
)
from regtta.models import Forward, Inputs
from regtta.persistence import require_bool, require_count, require_mapping, require_str, state_error, utc_now
from regtta.types import Diagnostics, Step, StepView, Verdict

logger = logging.getLogger(__name__)

_NO_STEP = StepResult(StepStats())
_MAX_REASONS = 100  # distinct reasons that are counted one by one


@dataclass(frozen=True)
class StreamStep:
    """Result of one batch, with what a view of it needs.

    Attributes:
        step: result for the user.
        returned: model that was rolled back to; empty if there was no rollback.
        shard: the samples that were not excluded.
        forward: forward pass of these samples that the predictions come from.
        batch: the same samples as the guards saw them, with their cached forward passes.
    """

    step: Step
    returned: Literal["source", "good", ""]
    shard: Shard
    forward: Forward
    batch: IncomingBatch


class Stream:
    """A learner under guards, from the first batch on.

    Args:
        learner: takes the steps.
        forward: predicts without learning.
        guards: guards on batches and steps.
        processes: processes that share each batch.

    Attributes:
        batches: number of batches so far.
        learned: number of batches that were learned from.
        begun: time of the first batch or of the last reset, in ISO 8601 and UTC.
        moved: True if the model differs from the source model.
        reasons: number of batches that were not learned from, by reason, since this object was created or reset.
    """

    def __init__(
        self, learner: Learner, forward: ForwardRunner, guards: Sequence[Guard], processes: Communicator
    ) -> None:
        self.learner = learner
        self._forward = forward
        self._guards = guards
        self._processes = processes
        self._warned = bool(learner.never_adapts)
        self.reset()

    def reset(self) -> None:
        """Start a new stream from the source model."""
        learner = self.learner
        learner.reset()
        context = GuardContext(learner.min_batch_size, learner.context.source, learner.context.head)
        self._chain = GuardChain(self._guards, context, self._processes)
        self.batches = self.learned = 0
        self.begun = utc_now()
        self.moved = False
        self.reasons: Counter[str] = Counter()
        self._good: dict[str, Any] = {}

    def step(self, shard: Shard, *, frozen: bool = False) -> StreamStep:
        """Predict a batch, and learn from it unless a guard rejects the batch or the step."""
        # Guards exclude samples, and may reject the others before any work.
        batch = self._incoming(shard)
        screened = Screened(batch, FROZEN) if frozen else self._chain.before_step(batch)
        part, excluded = shard, None
        if screened.kept is not None and screened.batch.size:
            part, excluded = _split(shard, screened)
        unlearned = None if excluded is None else self._forward.current(excluded)
        # One or more steps, each kept or undone as the guards decide.
        ruling: Ruling = screened.ruling or self.learner.never_adapts or None
        first, kept = _NO_STEP, False  # the first step on the batch, and whether it was kept
        for repeat in range(self.learner.steps if ruling is None else 0):
            result = self.learner.step(part, repeated=repeat > 0)
            try:
                judgement = result.skipped or self._chain.after_step(result.stats)
            except BaseException:
                self.learner.rollback()
                raise
            refused = isinstance(judgement, str | Rollback)
            if refused:
                self.learner.rollback()
            else:
                self.learner.commit(result)
            if repeat == 0:
                first, kept, ruling = result, not refused, judgement if refused else result.buffered or judgement
            elif isinstance(judgement, Rollback | MarkGood):
                ruling = judgement
            if refused or result.buffered:
                break
        self.moved = self.moved or kept
        answered = first.stats.forward if kept else None
        return self._finish(_Outcome(screened, part, excluded, unlearned, ruling, first.stats, answered))

    def _finish(self, outcome: "_Outcome") -> StreamStep:
        """Apply the ruling to the model, and assemble predictions and diagnostics of the batch."""
        screened, part, ruling, stats = outcome.screened, outcome.part, outcome.ruling, outcome.stats
        excluded, unlearned, batch = outcome.excluded, outcome.unlearned, screened.batch
        if not batch.size:  # every sample was excluded
            batch = self._incoming(part)
        returned: Literal["source", "good", ""] = ""
        if isinstance(ruling, MarkGood):
            self._good = self.learner.state_dict()
        elif isinstance(ruling, Rollback):
            returned, batch = self.return_to(ruling.to), self._incoming(part)
            unlearned = None if excluded is None else self._forward.current(excluded)
        forward = outcome.answered or batch.current
        predictions = forward.outputs
        if self._processes.size > 1:
            predictions = self._processes.own(predictions, part.counts)
        if excluded is not None and unlearned is not None and screened.kept is not None:
            others = self._processes.own(unlearned.outputs, excluded.counts)
            predictions = _join(predictions, others, screened.kept, screened.excluded_rows)
        reason = ruling.reason if isinstance(ruling, Rollback) else ruling if isinstance(ruling, str) else ""
        verdict = Verdict(learned=not reason, reason=reason, returned=returned)
        diagnostics = Diagnostics(stats.loss, stats.gradient_norm, self.learner.displacement, verdict)
        step = Step(self.batches, predictions, diagnostics, screened.excluded_rows)
        self.batches += 1
        self.learned += not reason
        if reason:
            known = reason in self.reasons or len(self.reasons) < _MAX_REASONS
            self.reasons[reason if known else "other reasons"] += 1
            if self.batches >= MAX_UNLEARNED and not self.learned and not self._warned:
                self._warn_of_unlearned()
        return StreamStep(step, returned, part, forward, screened.batch)

    def _warn_of_unlearned(self) -> None:
        message = self.unlearned
        if message:
            self._warned = True
            logger.warning("%s", message)

    @property
    def unlearned(self) -> str:
        """Warning that nothing is learned from the stream, with the reasons; empty if there is no cause for it."""
        return "" if self.learner.never_adapts else describe_unlearned(self.reasons, self.learned)

    def view(self, done: StreamStep) -> StepView:
        """Return the forward passes of a batch by both models; that of the source model is computed if necessary."""
        source = done.forward
        if self.moved:
            cached = done.batch.cached_source if done.batch.size else None
            source = cached or self._forward.source(done.shard)
        return StepView(done.step, done.forward, source)

    def return_to(self, where: Literal["source", "good"]) -> Literal["source", "good"]:
        """Roll the model back and return where to: without a good model, to the source model."""
        if where == "good" and self._good:
            self.learner.load_state_dict(self._good)
        else:
            where, self._good = "source", {}
            self.learner.reset()
        self.moved = where == "good"
        self._chain.on_rollback()
        return where

    def _incoming(self, shard: Shard) -> IncomingBatch:
        def part(inputs: Inputs, counts: Sequence[int]) -> Shard:
            return Shard(inputs, None, counts, whole=shard.whole and sum(counts) == sum(shard.counts))

        return IncomingBatch(
            shard.inputs,
            lambda inputs, counts: self._forward.current(part(inputs, counts)),
            lambda inputs, counts: self._forward.source(part(inputs, counts)),
            moved=self.moved,
            processes=self._processes,
            counts=shard.counts,
        )

    # --- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the stream, as tensors and plain values."""
        return {
            "index": self.batches,
            "learned": self.learned,
            "begun": self.begun,
            "moved": self.moved,
            "learner": self.learner.state_dict(),
            "watches": self._chain.state_dict(),
            "good": copy.deepcopy(self._good),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`, or raise a StateError that names the invalid field and change nothing."""
        valid = self._validated(state)
        before = self.state_dict()
        try:
            self._restore(valid)
        except BaseException as error:  # user-defined rules, guards and optimizers may raise anything
            self._restore(before)
            if isinstance(error, RegttaError) or not isinstance(error, Exception):
                raise
            raise StateError(
                f"The state cannot be resumed: the method, a guard or the optimizer does not accept it "
                f"({type(error).__name__}: {error}). Restore the file from a backup, or start a new stream."
            ) from error

    def _validated(self, state: object) -> dict[str, Any]:
        """Return a state that can be loaded, with its learners' states in the current format; change nothing."""
        keys = ("index", "learned", "begun", "moved", "learner", "watches", "good")
        found = dict(require_mapping("", state, keys))
        require_count("learned", found["learned"], maximum=require_count("index", found["index"]))
        require_bool("moved", found["moved"])
        try:
            datetime.fromisoformat(require_str("begun", found["begun"]))
        except ValueError as error:
            raise state_error("begun", "a time", found["begun"]) from error
        self._chain.validate_state(found["watches"], "watches")
        found["learner"] = self.learner.validated_state(found["learner"], "learner")
        if require_mapping("good", found["good"]):
            found["good"] = self.learner.validated_state(found["good"], "good")
        return found

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.reset()
        self.learner.load_state_dict(state["learner"])
        self._chain.load_state_dict(state["watches"])
        self.batches, self.learned, self.begun = state["index"], state["learned"], state["begun"]
        self.moved = state["moved"]
        self._good = copy.deepcopy(dict(state["good"]))


@dataclass(frozen=True)
class _Outcome:
    """Decisions of guards and learner on one batch, before its result is assembled.

    Attributes:
        screened: ruling of the guards before the step.
        part: samples that were not excluded; all of them if every sample was.
        excluded: samples that were excluded, if there are others.
        unlearned: their forward pass in eval mode, before the step.
        ruling: ruling on the batch.
        stats: measurements of the first step.
        answered: forward pass of the first step, if it was kept.
    """

    screened: Screened
    part: Shard
    excluded: Shard | None
    unlearned: Forward | None
    ruling: Ruling
    stats: StepStats
    answered: Forward | None


def _split(shard: Shard, screened: Screened) -> tuple[Shard, Shard]:
    """Return the samples to learn from and the excluded ones."""
    kept, counts = screened.kept, screened.batch.counts
    if kept is None:
        raise ValueError("expected a batch with excluded samples")
    others = [of_all - of_rest for of_all, of_rest in zip(shard.counts, counts, strict=True)]
    rows = torch.tensor(screened.excluded_rows, dtype=torch.int64, device=kept.device)
    targets = shard.targets
    if targets is not None and len(targets) == len(shard.inputs):  # else the method reports the mismatch
        targets = targets[kept.to(targets.device)]
    part = Shard(screened.batch.inputs, targets, counts, whole=False)
    return part, Shard(shard.inputs[rows], None, others, whole=False)


def _join(kept: Tensor, excluded: Tensor, rows: Tensor, excluded_rows: Sequence[int]) -> Tensor:
    """Return the predictions of all samples in their order, given those of both parts."""
    predictions = kept.new_empty(len(kept) + len(excluded), *kept.shape[1:])
    predictions[rows] = kept
    predictions[list(excluded_rows)] = excluded.to(kept.dtype)
    return predictions
