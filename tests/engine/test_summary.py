"""Text of ``Adapter.summary`` over the life of a stream."""

import logging
import re

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.engine.stream import _MAX_REASONS
from regtta.guards import Guard, GuardState

BATCHES = small_models.table(16 * 8, shift=1.0, scale=1.5, seed=2).split(16)


def lines(adapter):
    """Return the summary as a list of names and values."""
    rows = [re.fullmatch(r"(\w+) +(.*)", line) for line in adapter.summary().splitlines()]
    assert all(rows), adapter.summary()
    return [row.groups() for row in rows]


def values(adapter, name):
    return [value for found, value in lines(adapter) if found == name]


def make(method=None, **options):
    model = small_models.mlp()
    return regtta.Adapter(
        model, method or regtta.SSA(k=4), regtta.collect(model, small_models.table(400).split(50)), **options
    )


class Reject(Guard):
    """Guard that rejects batches for the reasons given, one after the other."""

    def __init__(self, *reasons):
        self.reasons = reasons

    def start(self, context):
        return _RejectState(self.reasons)


class _RejectState(GuardState):
    def __init__(self, reasons):
        self.reasons = iter(reasons)

    def before_step(self, batch):
        return next(self.reasons, None)


def test_the_summary_of_a_new_adapter():
    adapter = make()
    model = small_models.mlp()
    total = sum(p.numel() for p in model.parameters())
    norms = [p.numel() for m in model.modules() if isinstance(m, nn.BatchNorm1d) for p in m.parameters()]
    assert lines(adapter) == [
        ("model", f"Sequential, {total:,} parameters"),
        ("method", repr(regtta.SSA(k=4))),
        ("adapted", f"{sum(norms):,} parameters in {len(norms)} tensors"),
        ("head", "6"),
        ("statistics", repr(adapter.source)),
        ("guards", "FiniteInputs, OutlierRows, MinBatchSize, NonConstantInputs, FiniteStep"),
        ("stream", "0 of 0 batches learned from"),
        ("displacement", "0"),
    ]
    assert adapter.source.head == "6"
    assert f"count={adapter.source.count}" in values(adapter, "statistics")[0]
    assert adapter.source.count == 400


def test_the_method_is_shown_with_its_overrides():
    (text,) = values(make(regtta.SSA(), k=3, lr=0.5), "method")
    assert "k=3" in text
    assert "lr=0.5" in text


@pytest.mark.parametrize("trainable", ["affine", "bias", "extractor"])
def test_the_adapted_parameters_are_those_that_need_a_gradient(trainable):
    adapter = make(trainable=trainable)
    moving = [p.numel() for p in adapter.model.parameters() if p.requires_grad]
    assert values(adapter, "adapted") == [f"{sum(moving):,} parameters in {len(moving)} tensors"]


def test_the_summary_without_statistics_guards_and_head():
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), guards=())
    assert values(adapter, "statistics") == values(adapter, "guards") == values(adapter, "head") == ["none"]


def test_the_summary_has_no_stream_before_the_head_is_known():
    adapter = regtta.Adapter(small_models.mlp(3), regtta.Tent())
    assert [name for name, _ in lines(adapter)] == ["model", "method", "statistics", "guards"]
    adapter.adapt(BATCHES[0])
    assert values(adapter, "head") == ["6"]
    assert values(adapter, "stream") == ["1 of 1 batches learned from"]


def test_counts_reasons_and_displacement_of_a_stream():
    adapter = make()
    steps = list(adapter.run([*BATCHES[:3], BATCHES[3][:1], BATCHES[4][:1], torch.ones(16, 5), BATCHES[5]]))
    assert values(adapter, "stream") == [f"{sum(step.adapted for step in steps)} of {len(steps)} batches learned from"]
    reasons = [step.reason for step in steps if step.reason]
    assert len(reasons) == 3
    assert values(adapter, "rejected") == [f"2: {reasons[0]}", f"1: {reasons[2]}"]
    assert values(adapter, "displacement") == [f"{steps[-1].diagnostics.displacement:.3g}"]
    adapter.freeze()
    adapter.adapt(BATCHES[6])
    assert "1: frozen by hand" in values(adapter, "rejected")
    adapter.reset()
    assert values(adapter, "rejected") == []
    assert values(adapter, "stream") == ["0 of 0 batches learned from"]


def test_large_counts_have_separators():
    adapter = regtta.Adapter(small_models.mlp(), regtta.NoAdaptation())
    x = BATCHES[0][:2]
    for _ in range(1001):
        step = adapter.adapt(x)
    assert values(adapter, "stream") == ["0 of 1,001 batches learned from"]
    assert values(adapter, "rejected") == [f"1,001: {step.reason}"]


def test_the_most_frequent_reasons_come_first_and_the_rest_is_one_line():
    reasons = [f"reason {number}" for number in range(8) for _ in range(number + 1)]  # 8 times "reason 7", and so on
    adapter = make(guards=(Reject(*reasons),))
    for _ in reasons:
        assert not adapter.adapt(BATCHES[0]).adapted
    expected = [f"{number + 1}: reason {number}" for number in (7, 6, 5, 4, 3)]
    assert values(adapter, "rejected") == [*expected, f"{1 + 2 + 3}: for other reasons"]


def test_five_reasons_are_listed_without_a_line_for_others():
    adapter = make(guards=(Reject(*"abcde"),))
    for _ in range(5):
        adapter.adapt(BATCHES[0])
    assert sorted(values(adapter, "rejected")) == [f"1: {reason}" for reason in "abcde"]


def test_the_number_of_stored_reasons_is_bounded():
    """A reason may hold a number that differs at every batch."""
    count = _MAX_REASONS + 40
    adapter = regtta.Adapter(
        small_models.mlp(), regtta.BNAdapt(), guards=(Reject(*(f"the loss is {number}" for number in range(count))),)
    )
    for _ in range(count):
        adapter.adapt(BATCHES[0][:2])
    counted = adapter._session.stream.reasons
    assert len(counted) == _MAX_REASONS + 1
    assert counted["other reasons"] == 40
    assert sum(int(text.split(":")[0]) for text in values(adapter, "rejected")) == count


def test_warnings_at_creation_are_kept_and_still_logged(caplog):
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = make(regtta.SSA(k=100))
    rank = adapter.source.numerical_rank
    expected = f"k=100 is beyond the numerical rank {rank} of the source features: using {rank}."
    assert values(adapter, "warning") == [expected]
    assert expected in caplog.messages
    list(adapter.run(BATCHES))
    adapter.reset()
    assert values(adapter, "warning") == [expected]


def test_warnings_belong_to_their_adapter(caplog):
    make(regtta.SSA(k=100))
    assert caplog.messages
    assert values(make(), "warning") == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="captured on this machine")
def test_execution_options_that_have_no_effect_are_among_the_warnings(caplog):
    adapter = make(execution=regtta.Execution(capture=True))
    assert not adapter.execution.capture
    assert len(caplog.messages) == 1
    assert values(adapter, "warning") == caplog.messages


def test_no_logging_handler_is_left_installed():
    before = list(logging.getLogger("regtta").handlers)
    make()
    with pytest.raises(regtta.RegttaError):
        make(head="0")
    assert logging.getLogger("regtta").handlers == before


def test_repr_is_one_line_with_counts():
    adapter = make()
    assert repr(adapter) == "Adapter(Sequential, ssa, head='6', batches=0, adapted=0)"
    list(adapter.run([BATCHES[0], BATCHES[1][:1]]))
    assert repr(adapter) == "Adapter(Sequential, ssa, head='6', batches=2, adapted=1)"
    assert repr(regtta.Adapter(small_models.mlp(), regtta.BNAdapt())) == (
        "Adapter(Sequential, bn_adapt, batches=0, adapted=0)"
    )
