import itertools

import pytest
import torch

import regtta
from helpers import monitored_stream, small_models
from helpers.attaching import attach
from regtta.errors import OptionError
from regtta.monitoring import (
    DEFAULT_ALARMS,
    LabelShiftAlarm,
    NonstationarityAlarm,
    NotHelping,
    OutputShift,
    RejectionAlarm,
    RiskAlarm,
    ShiftAlarm,
)
from regtta.monitoring.monitor import AlarmSet

SHIFTED = {"beyond_chance": 3.0}
RAISING = {
    ShiftAlarm(): {"evidence": monitored_stream.evidence(**SHIFTED)},
    NotHelping(): {"evidence": monitored_stream.evidence(**SHIFTED), "batches_since_helped": 16},
    RiskAlarm(): {"risk": 0.71},
    LabelShiftAlarm(): {
        "evidence": monitored_stream.evidence(
            **SHIFTED, reweighting=8.9, outputs_source=OutputShift((0.0, -0.6), (1.0, 1.0))
        )
    },
    NonstationarityAlarm(): {"evidence": monitored_stream.evidence(steadiness=1.1)},
    RejectionAlarm(): {"learned": False, "reason": "why"},
}
QUIET = {
    ShiftAlarm(): [{"evidence": monitored_stream.evidence(beyond_chance=1.0)}],
    NotHelping(): [
        {"evidence": monitored_stream.evidence(**SHIFTED), "batches_since_helped": 15},
        {"batches_since_helped": 99},
    ],
    RiskAlarm(): [{"risk": 0.7}, {"risk": None}],
    LabelShiftAlarm(): [
        {"evidence": monitored_stream.evidence(**SHIFTED, reweighting=9.1, outputs_source=OutputShift((2.0,), (1.0,)))},
        {"evidence": monitored_stream.evidence(**SHIFTED, reweighting=1.0, outputs_source=OutputShift((0.4,), (1.0,)))},
        {"evidence": monitored_stream.evidence(reweighting=1.0, outputs_source=OutputShift((2.0,), (1.0,)))},
    ],
    NonstationarityAlarm(): [
        {"evidence": monitored_stream.evidence(steadiness=None)},
        {"evidence": monitored_stream.evidence(steadiness=1.0)},
    ],
    RejectionAlarm(): [{}],
}


def events_of(alarm, stream):
    alarms_of_stream = AlarmSet([alarm])
    return [
        event
        for number, each in enumerate(stream)
        for event in alarms_of_stream.check(monitored_stream.signals(number, **each))
    ]


@pytest.mark.parametrize("alarm", RAISING, ids=lambda alarm: alarm.name)
def test_each_alarm_is_raised_and_cleared_once(alarm):
    events = events_of(alarm, [*[{}] * 40, *[RAISING[alarm]] * 60, *[{}] * 60, *[RAISING[alarm]] * 60])
    assert [event.kind for event in events] == ["raised", "cleared", "raised"]
    assert all(event.alarm == alarm.name for event in events)
    first, over, _ = events
    assert 40 <= first.index < 60
    assert 100 <= over.index < 120
    assert first.action == alarm.action != ""
    assert first.message


@pytest.mark.parametrize("alarm", QUIET, ids=lambda alarm: alarm.name)
def test_no_alarm_below_the_threshold(alarm):
    for changes in QUIET[alarm]:
        assert events_of(alarm, [changes] * 50) == []


def test_all_default_alarms_are_covered():
    assert set(RAISING) == set(QUIET) == set(DEFAULT_ALARMS)


def test_an_alarm_requires_consecutive_batches():
    bad = RAISING[ShiftAlarm()]
    assert [event.index for event in events_of(ShiftAlarm(batches=5), [bad] * 9)] == [4]
    assert events_of(ShiftAlarm(batches=3), [bad, bad, {}] * 20) == []
    # While there is no evidence nothing changes.
    assert [e.index for e in events_of(ShiftAlarm(batches=2), [bad, {"evidence": None}, bad, {"evidence": None}])] == [
        2
    ]


def test_rejections_by_the_gate_do_not_count():
    resting = [{"learned": False, "reason": reason} for reason in ("no shift", "aligned with the source")]
    assert events_of(RejectionAlarm(share=0.5, batches=10), resting * 20) == []


def test_rejections_are_counted_over_recent_batches():
    refused = {"learned": False, "reason": "why"}
    events = events_of(RejectionAlarm(share=0.5, batches=10), [*[{}] * 10, *[refused] * 6, *[{}] * 6])
    # Six of ten are more than half; five are not.
    assert [(event.kind, event.index) for event in events] == [("raised", 15), ("cleared", 20)]
    assert "50%" in events[0].message


@pytest.mark.parametrize(
    ("alarm", "options"),
    [
        (ShiftAlarm, {"batches": 0}),
        (NotHelping, {"after": 0}),
        (RiskAlarm, {"above": 1.0}),
        (LabelShiftAlarm, {"limit": -1.0}),
        (LabelShiftAlarm, {"moved": 0.0}),
        (RejectionAlarm, {"share": 0.0}),
        (RejectionAlarm, {"batches": 2.5}),
    ],
)
def test_invalid_options(alarm, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        alarm(**options)


STREAM_ALARMS = (ShiftAlarm(), NotHelping(), LabelShiftAlarm(), NonstationarityAlarm())


def monitor_of(method=None, alarms=STREAM_ALARMS, **options):
    return attach(regtta.Monitor(alarms=alarms, **options), monitored_stream.adapter(method or regtta.NoAdaptation()))


def test_no_false_alarm_in_two_thousand_source_batches():
    events = []
    monitor = monitor_of(on_event=[events.append])
    beyond = unsteady = 0
    for x in monitored_stream.stream(2000, size=16):
        monitor.adapter.adapt(x)
        if monitor.signals.evidence is not None:
            beyond += monitor.signals.evidence.beyond_chance > 1
            unsteady += (monitor.signals.evidence.steadiness or 0) > 1
    assert events == []
    # Significance level 1e-4 per batch; consecutive batches share samples, so false positives come in runs.
    assert beyond == 0
    assert unsteady <= 5


def test_a_shift_and_its_end_are_detected_within_a_few_batches():
    events = []
    monitor = monitor_of(alarms=(ShiftAlarm(),), on_event=[events.append])
    for x in itertools.chain(
        monitored_stream.stream(20),
        monitored_stream.stream(40, shift=0.8, seed=10),
        monitored_stream.stream(80, seed=11),
    ):
        monitor.adapter.adapt(x)
    assert [event.kind for event in events] == ["raised", "cleared"]
    assert 20 <= events[0].index < 30
    assert events[1].index > 60


def test_a_shift_without_adaptation_raises_not_helping():
    monitor = monitor_of()
    for x in monitored_stream.stream(40, shift=1.5):
        monitor.adapter.adapt(x)
    assert monitor.active == {
        "ShiftAlarm": True,
        "NotHelping": True,
        "LabelShiftAlarm": monitor.active["LabelShiftAlarm"],
        "UnsteadyAlarm": False,
    }


def test_adaptation_that_reduces_the_misalignment_does_not_raise_not_helping():
    monitor = monitor_of(regtta.SSA(k=4))
    for x in monitored_stream.stream(40, shift=1.5):
        monitor.adapter.adapt(x)
    assert monitor.active["ShiftAlarm"]
    assert not monitor.active["NotHelping"]
    assert monitor.signals.batches_since_helped == 0


def test_a_sorted_stream_is_nonstationary_and_one_half_of_the_labels_is_a_label_shift():
    model = small_models.mlp()
    x = small_models.table(32 * 60, seed=3)
    with torch.no_grad():
        order = model(x).squeeze(1).argsort()
    sorted_stream = monitor_of()
    for batch in x[order].split(32):
        sorted_stream.adapter.adapt(batch)
    assert sorted_stream.raised["UnsteadyAlarm"] == 1
    upper = order[len(order) // 2 :]
    half = monitor_of()
    for batch in x[upper[torch.randperm(len(upper))]].split(32):
        half.adapter.adapt(batch)
    assert half.active["LabelShiftAlarm"]
    assert not half.active["UnsteadyAlarm"]
