import sys

import numpy as np
import pytest
from river import drift

from helpers import monitored_stream
from regtta.errors import MissingExtraError, OptionError
from regtta.monitoring import DriftAlarm, FeatureShift
from regtta.monitoring.drift import PageHinkley
from regtta.monitoring.monitor import AlarmSet


def levels(seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(level, 0.05, 120) for level in (0.2, 0.5, 0.1, 0.6, 0.6)]).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_page_hinkley_agrees_with_river(seed):
    mine = PageHinkley(least=30, delta=0.01, threshold=1.0)
    rivers = drift.PageHinkley(min_instances=30, delta=0.01, threshold=1.0, alpha=1.0, mode="up")
    found = []
    for value in levels(seed):
        rivers.update(value)
        found.append((mine.changed(value), rivers.drift_detected))
    assert all(one == other for one, other in found)
    assert sum(one for one, _ in found) >= 2


def test_page_hinkley_resumes_from_its_state():
    values, first, second = levels(), PageHinkley(30, 0.01, 1.0), PageHinkley(30, 0.01, 1.0)
    expected = [first.changed(value) for value in values]
    first._begin()
    found = [first.changed(value) for value in values[:100]]
    second.load_state_dict(first.state_dict())
    assert found + [second.changed(value) for value in values[100:]] == expected


def events_of(alarm, values):
    alarms = AlarmSet([alarm])
    stream = (
        monitored_stream.signals(number, evidence=monitored_stream.evidence(source=FeatureShift((value,), (1.0,))))
        for number, value in enumerate(values)
    )
    return [event for signals in stream for event in alarms.check(signals)]


@pytest.mark.parametrize("detector", ["page_hinkley", "adwin"])
def test_a_change_of_level_raises_the_alarm_for_hold_batches(detector):
    values = levels()[:240]
    alarm = DriftAlarm(detector=detector, hold=10)
    assert events_of(alarm, values[:120]) == []
    events = events_of(alarm, values)
    assert 120 <= events[0].index < (130 if detector == "page_hinkley" else 240)  # ADWIN tests every 32 values
    assert events[0].message == "the level of shift_source changed"
    assert [event.kind for event in events] == ["raised", "cleared"]
    if detector == "page_hinkley":
        assert events[1].index == events[0].index + 10


def test_missing_signals_are_ignored():
    alarms = AlarmSet([DriftAlarm(signal="loss", least=2, threshold=0.1)])
    assert [alarms.check(monitored_stream.signals(n, loss=None)) for n in range(9)] == [[]] * 9
    found = [alarms.check(monitored_stream.signals(n, loss=value)) for n, value in enumerate([0.0, 0.0, 5.0])]
    assert [len(events) for events in found] == [0, 0, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"detector": "cusum"},
        {"signal": "shift_sorce"},
        {"hold": 0},
        {"least": 0},
        {"delta": -1.0},
        {"threshold": 0.0},
        {"confidence": 1.0},
    ],
)
def test_invalid_options(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        DriftAlarm(**options)


def test_adwin_without_river_raises_and_page_hinkley_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.setitem(sys.modules, "river.drift", None)
    with pytest.raises(MissingExtraError, match=r'pip install "regtta\[monitor\]"'):
        DriftAlarm(detector="adwin")
    assert DriftAlarm().start().check(monitored_stream.signals()) is None
