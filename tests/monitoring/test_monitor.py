import logging
import threading

import pytest
import torch

import regtta
from helpers import monitored_stream, small_models
from helpers.attaching import Views, attach
from regtta.errors import MismatchError, OptionError, StatisticsError
from regtta.guards import SAFE
from regtta.models.features import FeatureModel
from regtta.monitoring import Alarm, AlarmState, DriftAlarm, RejectionAlarm, ShiftAlarm, Writer


class Broken(Writer):
    def write(self, news):
        raise OSError("No space left on device: secret-path")

    def close(self):
        raise OSError("still none")


class RecordingWriter(Writer):
    def __init__(self):
        self.news = []

    def write(self, news):
        self.news.append(news)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


METHODS = {
    "ssa": regtta.SSA(k=4),
    "bn_adapt": regtta.BNAdapt(),
    "source": regtta.NoAdaptation(),
    "window": regtta.SSA(k=4, window=64),
}


@pytest.mark.parametrize("guards", [(), SAFE], ids=["plain", "safe"])
@pytest.mark.parametrize("name", METHODS)
def test_a_monitored_adapter_is_bit_identical_to_an_unmonitored_one(name, guards):
    options = {"guards": guards} if guards else {}
    unmonitored = monitored_stream.adapter(METHODS[name], **options)
    monitor = attach(
        regtta.Monitor(writers=[RecordingWriter(), Broken()]), monitored_stream.adapter(METHODS[name], **options)
    )
    batches = [
        *monitored_stream.stream(12, shift=1.0),
        torch.full((4, 5), torch.nan),
        small_models.table(1),
        *monitored_stream.stream(4, seed=3),
    ]
    for x in batches:
        expected, step = unmonitored.adapt(x), monitor.adapter.adapt(x)
        assert torch.equal(step.predictions, expected.predictions) or torch.isnan(expected.predictions).all()
        assert equal(step.diagnostics.verdict.__dict__, expected.diagnostics.verdict.__dict__)
        assert step.diagnostics.loss == expected.diagnostics.loss
    states = unmonitored.state_dict(), monitor.adapter.state_dict()
    for state in states:
        state.pop("begun")
    assert equal(*states)


@pytest.fixture
def recorded_passes(monkeypatch):
    """Record the passes of the model: True for passes of the source model."""
    passes = []
    plain = FeatureModel.__call__
    monkeypatch.setattr(
        FeatureModel, "__call__", lambda self, *args: (passes.append(len(args) > 1), plain(self, *args))[1]
    )
    return passes


def run_and_record(recorded_passes, runner, batches=6, **options):
    recorded_passes.clear()
    adapter = runner.adapter if isinstance(runner, regtta.Monitor) else runner
    list(adapter.run(monitored_stream.stream(batches, **options)))
    return list(recorded_passes)


def test_monitoring_adds_one_source_pass_per_view_and_none_without_adaptation(recorded_passes):
    frozen = attach(regtta.Monitor(), monitored_stream.adapter(regtta.NoAdaptation()))
    assert run_and_record(recorded_passes, frozen) == run_and_record(
        recorded_passes, monitored_stream.adapter(regtta.NoAdaptation())
    )
    assert run_and_record(recorded_passes, attach(regtta.Monitor(), monitored_stream.adapter())) == [False, True] * 6
    assert (
        run_and_record(recorded_passes, attach(regtta.Monitor(every=3), monitored_stream.adapter()))
        == [False, True, False, False] * 2
    )


def test_the_source_pass_of_guards_is_reused(recorded_passes):
    unmonitored = run_and_record(recorded_passes, monitored_stream.adapter(guards=SAFE), 30, shift=1.0)
    assert (
        run_and_record(recorded_passes, attach(regtta.Monitor(), monitored_stream.adapter(guards=SAFE)), 30, shift=1.0)
        == unmonitored
    )
    assert True in unmonitored


def test_views_hold_the_source_pass_and_the_pass_of_the_predictions():
    model = small_models.mlp()
    adapter = monitored_stream.adapter(model=model)
    views = attach(Views(), adapter).views
    for x in monitored_stream.stream(5, shift=1.0):
        step = adapter.adapt(x)
        assert views[-1].step is step
        assert torch.equal(views[-1].answered.outputs, step.predictions)
        torch.testing.assert_close(views[-1].source.outputs, model(x).detach())
        torch.testing.assert_close(views[-1].source.features, model[:6](x).detach())
    assert len(views) == 5
    adapter.freeze()
    adapter.adapt(x)
    torch.testing.assert_close(views[-1].answered.outputs, adapter.predict(x))
    torch.testing.assert_close(views[-1].source.outputs, model(x).detach())
    adapter.reset()
    adapter.freeze()
    adapter.adapt(x)
    assert views[-1].answered is views[-1].source


def test_the_source_head_is_kept_after_the_head_of_the_adapter_changes():
    model = small_models.mlp()
    adapter = monitored_stream.adapter(model=model)
    with torch.no_grad():
        adapter.model[6].weight.add_(1.0)
    assert torch.equal(adapter.source_head().weight, model[6].weight)
    assert torch.equal(adapter.source_head().bias, model[6].bias)


def test_signals_describe_the_last_step():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    assert monitor.signals is None
    for x in monitored_stream.stream(3, shift=1.0):
        step = monitor.adapter.adapt(x)
    signals = monitor.signals
    assert (signals.index, signals.samples, signals.learned, signals.reason) == (2, 32, True, "")
    assert (signals.loss, signals.displacement) == (step.diagnostics.loss, step.diagnostics.displacement)
    monitor.adapter.adapt(torch.full((4, 5), torch.nan))
    assert monitor.signals.reason == "4 of 4 samples are not finite"
    assert not monitor.signals.learned


def test_the_risk_is_zero_for_the_source_model_and_a_fraction_otherwise():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter(regtta.NoAdaptation()))
    list(monitor.adapter.run(monitored_stream.stream(4, shift=1.0)))
    assert monitor.signals.risk == 0.0
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    monitor.adapter.adapt(monitored_stream.stream(1, size=8)[0])
    assert monitor.signals.risk is None
    list(monitor.adapter.run(monitored_stream.stream(8, shift=1.0)))
    assert 0 < monitor.signals.risk < 1


def test_batches_since_helped_counts_from_the_start_of_the_stream():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    monitor.adapter.freeze()
    for number, x in enumerate(monitored_stream.stream(5, shift=1.5), start=1):
        monitor.adapter.adapt(x)
        assert monitor.signals.batches_since_helped == number
    monitor.adapter.unfreeze()
    list(monitor.adapter.run(monitored_stream.stream(20, shift=1.5)))
    assert monitor.signals.batches_since_helped == 0
    assert monitor.signals.evidence.alignment_gain > 0


ALARMS = (ShiftAlarm(batches=2), RejectionAlarm(batches=3), DriftAlarm(least=3, threshold=0.1))


def test_a_resumed_monitor_matches_an_uninterrupted_one(tmp_path):
    batches = [*monitored_stream.stream(9), *monitored_stream.stream(9, shift=1.0, seed=4)]
    uninterrupted, news = attach(regtta.Monitor(alarms=ALARMS), monitored_stream.adapter()), RecordingWriter()
    uninterrupted.writers = (news,)
    list(uninterrupted.adapter.run(batches))
    for stop in (1, 8, 13):
        first = attach(regtta.Monitor(alarms=ALARMS), monitored_stream.adapter())
        list(first.adapter.run(batches[:stop]))
        torch.save([first.state_dict(), first.adapter.state_dict()], tmp_path / "state.pt")
        monitor_state, adapter_state = torch.load(tmp_path / "state.pt", weights_only=True)
        again, rest = monitored_stream.adapter(), RecordingWriter()
        again.load_state_dict(adapter_state)
        resumed = attach(regtta.Monitor(alarms=ALARMS, writers=[rest]), again)
        resumed.load_state_dict(monitor_state)
        list(resumed.adapter.run(batches[stop:]))
        assert rest.news == news.news[stop:]
        assert resumed.raised == uninterrupted.raised
        assert equal(resumed.state_dict(), uninterrupted.state_dict())
    assert uninterrupted.raised


def test_a_state_of_another_monitor_is_rejected():
    state = attach(regtta.Monitor(alarms=ALARMS), monitored_stream.adapter()).state_dict()
    with pytest.raises(MismatchError, match="other alarms"):
        attach(regtta.Monitor(), monitored_stream.adapter()).load_state_dict(state)
    with pytest.raises(MismatchError, match="other options"):
        attach(regtta.Monitor(alarms=ALARMS, memory=7), monitored_stream.adapter()).load_state_dict(state)


def test_reset_clears_the_monitor():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    fresh = monitor.state_dict()
    list(monitor.adapter.run(monitored_stream.stream(20, shift=1.0)))
    monitor.adapter.reset()
    assert monitor.signals is None
    assert equal(monitor.state_dict(), fresh)
    assert monitor.adapter.adapt(small_models.table(8)).index == 0


def test_errors_of_writers_and_callbacks_are_counted_and_logged_once_without_their_message(caplog):
    def failing_handler(event):
        raise RuntimeError(f"secret in {event}")

    recorder = RecordingWriter()
    monitor = attach(
        regtta.Monitor(writers=[Broken(), recorder], on_event=[failing_handler]), monitored_stream.adapter()
    )
    with caplog.at_level(logging.WARNING, logger="regtta"), monitor.adapter:
        list(monitor.adapter.run(monitored_stream.stream(20, shift=1.5)))
    assert len(recorder.news) == 20
    assert monitor.failures["Broken"] == 21
    assert monitor.failures[failing_handler.__qualname__] == sum(monitor.raised.values()) > 0
    assert len(caplog.records) == 2
    assert "OSError" in caplog.text
    assert "secret" not in caplog.text


def test_a_callback_may_call_the_adapter_and_the_monitor():
    calls = []

    def roll_back(event):
        calls.append((event.alarm, monitor.adapter.rollback(), monitor.active[event.alarm], monitor.signals.index))
        monitor.adapter.freeze()

    monitor = attach(regtta.Monitor(alarms=[ShiftAlarm()], on_event=[roll_back]), monitored_stream.adapter())
    thread = threading.Thread(
        target=lambda: list(monitor.adapter.run(monitored_stream.stream(12, shift=1.5))), daemon=True
    )
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert calls == [("ShiftAlarm", "source", True, calls[0][3])]
    assert monitor.signals.evidence.disagreement == 0.0
    assert monitor.signals.risk == 0.0


def test_user_defined_alarms():
    class Tenth(Alarm):
        action = "Count on."

        def start(self):
            return TenthState()

    class TenthState(AlarmState):
        def check(self, signals):
            return "ten" if signals.index == 10 else None

    events = []
    list(
        attach(regtta.Monitor(alarms=[Tenth()], on_event=[events.append]), monitored_stream.adapter()).adapter.run(
            monitored_stream.stream(15)
        )
    )
    assert [(event.kind, event.index, event.message) for event in events] == [
        ("raised", 10, "ten"),
        ("cleared", 11, "ten"),
    ]


def test_concurrent_batches_are_monitored_one_at_a_time():
    monitor = attach(regtta.Monitor(writers=[recorder := RecordingWriter()]), monitored_stream.adapter())
    threads = [
        threading.Thread(target=lambda: list(monitor.adapter.run(monitored_stream.stream(10)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [news.signals.index for news in recorder.news] == list(range(40))


def test_signals_are_the_same_inside_and_outside_inference_mode():
    inside, outside = (
        attach(regtta.Monitor(), monitored_stream.adapter()),
        attach(regtta.Monitor(), monitored_stream.adapter()),
    )
    for number, x in enumerate(monitored_stream.stream(8, shift=1.0)):
        with torch.inference_mode(number % 2 == 0):
            inside.adapter.adapt(x)
        outside.adapter.adapt(x)
    assert inside.signals == outside.signals


@pytest.mark.parametrize("size", [1e18, 1e37])
def test_extremely_large_inputs_are_monitored_without_failures(size):
    monitor = attach(regtta.Monitor(writers=[recorder := RecordingWriter()]), monitored_stream.adapter())
    for x in monitored_stream.stream(8):
        monitor.adapter.adapt(x * size)
    assert len(recorder.news) == 8
    assert monitor.signals.evidence is None or monitor.signals.evidence.beyond_chance > 1
    assert not monitor.failures


def test_missing_statistics_and_invalid_options_are_rejected():
    with pytest.raises(StatisticsError, match="regtta.collect"):
        attach(regtta.Monitor(), regtta.Adapter(small_models.mlp(), regtta.BNAdapt()))
    for options in ({"every": 0}, {"memory": 0}, {"least": 0}, {"level": 0.0}, {"tolerance": -1.0}):
        with pytest.raises(OptionError, match=next(iter(options))):
            attach(regtta.Monitor(**options), monitored_stream.adapter())
