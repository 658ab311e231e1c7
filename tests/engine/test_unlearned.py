"""The warning about streams from which nothing is learned."""

import copy
import logging

import pytest
import torch

import regtta
from helpers import small_models
from regtta.engine.unlearned import describe_unlearned
from regtta.guards import Gate, Guard, StationarityGuard

SINGLES = small_models.table(60, shift=1.0).split(1)
BATCHES = small_models.table(60 * 16, shift=1.0).split(16)


def make(method="ssa", **options):
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, method, source, **options)


def warned(adapter):
    return [line for line in adapter.summary().splitlines() if line.startswith("warning")]


class Reject(Guard):
    """Guard that rejects every batch for the same reason."""

    def __init__(self, reason):
        object.__setattr__(self, "reason", reason)

    def before_step(self, batch):
        return self.reason


def test_one_warning_after_twenty_batches(caplog):
    adapter = make()
    list(adapter.run(SINGLES[:19]))
    assert caplog.messages == warned(adapter) == []
    list(adapter.run(SINGLES[19:]))
    assert caplog.messages == [
        "Nothing was learned from 20 batches (20: a batch of 1 has no variance). Pass larger batches, or keep a window "
        'of past samples: window=64, batch_norm="blended".'
    ]
    assert caplog.records[0].levelno == logging.WARNING
    (line,) = warned(adapter)
    assert "Nothing was learned from 60 batches (60: a batch of 1 has no variance)" in line


def test_once_per_adapter_and_gone_once_something_is_learned(caplog):
    adapter = make()
    list(adapter.run(SINGLES[:30]))
    adapter.reset()
    assert warned(adapter) == []
    list(adapter.run(SINGLES[:30]))
    assert len(caplog.messages) == 1
    adapter.adapt(BATCHES[0])
    assert warned(adapter) == []


def test_a_learned_batch_prevents_it(caplog):
    adapter = make()
    list(adapter.run([BATCHES[0], *SINGLES]))
    assert caplog.messages == warned(adapter) == []


@pytest.mark.parametrize("reason", ["no shift", "aligned with the source"])
def test_the_absence_of_a_shift_is_no_reason_to_warn(caplog, reason):
    adapter = make(guards=(Reject(reason),))
    list(adapter.run(BATCHES))
    assert caplog.messages == warned(adapter) == []


def test_a_gate_without_a_shift_does_not_warn(caplog):
    adapter = make(guards=(Gate(),))
    steps = list(adapter.run(small_models.table(60 * 16, seed=4).split(16)))
    assert not any(step.adapted for step in steps)
    assert {"no shift"} <= {step.reason for step in steps}
    assert caplog.messages == []


def test_any_other_reason_warns_with_the_reasons(caplog):
    adapter = make(guards=(Reject("too green"),))
    list(adapter.run(BATCHES[:25]))
    assert caplog.messages == [
        "Nothing was learned from 20 batches (20: too green). adapter.summary() lists all reasons; regtta.check(model, "
        "batch, source) looks for the cause."
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"guards": (Gate(least=50),)}, "fewer than 50 samples"),
        ({"guards": (StationarityGuard(patience=50),)}, "fewer than 50 samples"),
        ({"window": 100, "batch_norm": "blended"}, "fewer than 50 samples"),
    ],
)
def test_guards_and_windows_that_wait_for_samples_do_not_warn(caplog, options, words):
    options = {"batch_norm": "blended", "window": 4, **options}
    adapter = make(**options)
    steps = list(adapter.run(SINGLES[:45]))
    assert sum(words in step.reason for step in steps) >= 40
    assert not any(step.adapted for step in steps[5:45])
    assert caplog.messages == []


def test_methods_that_adapt_nothing_and_frozen_adapters_do_not_warn(caplog):
    adapter = regtta.Adapter(small_models.mlp(), regtta.NoAdaptation())
    list(adapter.run(BATCHES))
    frozen = make()
    frozen.freeze()
    list(frozen.run(BATCHES))
    assert caplog.messages == warned(adapter) == warned(frozen) == []


def test_copies_keep_the_line_in_the_summary():
    adapter = make()
    list(adapter.run(SINGLES[:20]))
    assert warned(copy.deepcopy(adapter)) == warned(adapter) != []


def test_several_reasons_are_listed_by_frequency():
    reasons = {"a": 1, "b": 12, "c": 5, "d": 7, "no shift": 100, "steady for fewer than 512 samples": 9}
    assert describe_unlearned(reasons, 0).startswith("Nothing was learned from 134 batches (12: b; 7: d; 5: c).")
    assert describe_unlearned({**reasons, "b": 6}, 0) == ""


def test_trainable_parameters_are_checked_when_the_adapter_is_created():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten())
    with pytest.raises(regtta.RegttaError):
        regtta.Adapter(model, "tent", trainable="all")
