"""Rulings of several guards, combined."""

import torch

from helpers.guard_inputs import incoming_batch
from regtta.guards import (
    Guard,
    GuardChain,
    GuardContext,
    MarkGood,
    Rollback,
    StepStats,
)


class FixedRulings(Guard):
    """Guard that returns the given rulings and records its calls."""

    def __init__(self, before=None, after=None, unusable=False):
        for name, value in {"before": before, "after": after, "unusable": unusable, "calls": []}.items():
            object.__setattr__(self, name, value)

    def before_step(self, incoming_batch):
        self.calls.append("before_step")
        return self.before

    def after_step(self, step_stats):
        self.calls.append("after_step")
        return self.after


def test_every_guard_receives_every_usable_batch_and_a_rollback_precedes_a_rejection():
    back = Rollback("back", "source")
    guards = FixedRulings("no"), FixedRulings(back), FixedRulings("no more")
    assert GuardChain(guards, GuardContext()).before_step(incoming_batch(torch.zeros(2, 3))).ruling == back
    assert [state.calls for state in guards] == [["before_step"]] * 3
    guards = FixedRulings("first"), FixedRulings("spoiled", unusable=True), FixedRulings(back)
    assert GuardChain(guards, GuardContext()).before_step(incoming_batch(torch.zeros(2, 3))).ruling == "first"
    assert guards[2].calls == []
    assert (
        GuardChain([FixedRulings(), FixedRulings()], GuardContext())
        .before_step(incoming_batch(torch.zeros(2, 3)))
        .ruling
        is None
    )


def test_the_first_rejection_of_a_step_is_returned_and_marking_as_good_requires_all_guards():
    assert (
        GuardChain(
            [FixedRulings(after=MarkGood()), FixedRulings(after="no"), FixedRulings(after="later")], GuardContext()
        ).after_step(StepStats())
        == "no"
    )
    assert (
        GuardChain([FixedRulings(after=MarkGood()), FixedRulings()], GuardContext()).after_step(StepStats())
        == MarkGood()
    )
    last = FixedRulings(after="no")
    GuardChain([FixedRulings(after="no"), last], GuardContext()).after_step(StepStats())
    assert last.calls == []
