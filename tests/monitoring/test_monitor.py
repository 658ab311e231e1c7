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


class Kept(Writer):
    def __init__(self):
        self.news = []

    def write(self, news):
        self.news.append(news)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


METHODS = {
    "ssa": regtta.SSA(k=4),
    "bn_adapt": regtta.BNAdapt(),
    "source": regtta.NoAdaptation(),
    "window": regtta.SSA(k=4, window=64),
}


@pytest.mark.parametrize("guards", [(), SAFE], ids=["plain", "safe"])
@pytest.mark.parametrize("name", METHODS)
def test_a_monitored_adapter_is_bit_for_bit_one_that_is_not(name, guards):
    options = {"guards": guards} if guards else {}
    alone = monitored_stream.adapter(METHODS[name], **options)
    monitor = attach(regtta.Monitor(writers=[Kept(), Broken()]), monitored_stream.adapter(METHODS[name], **options))
    batches = [
        *monitored_stream.stream(12, shift=1.0),
        torch.full((4, 5), torch.nan),
        small_models.table(1),
        *monitored_stream.stream(4, seed=3),
    ]
    for x in batches:
        expected, step = alone.adapt(x), monitor.adapter.adapt(x)
        assert torch.equal(step.predictions, expected.predictions) or torch.isnan(expected.predictions).all()
        assert same(step.diagnostics.verdict.__dict__, expected.diagnostics.verdict.__dict__)
        assert step.diagnostics.loss == expected.diagnostics.loss
    states = alone.state_dict(), monitor.adapter.state_dict()
    for state in states:
        state.pop("begun")
    assert same(*states)


@pytest.fixture
def counted(monkeypatch):
    """How many passes the model made."""
    passes = []
    plain = FeatureModel.__call__
    monkeypatch.setattr(
        FeatureModel, "__call__", lambda self, *args: (passes.append(len(args) > 1), plain(self, *args))[1]
    )
    return passes


def passes_of(counted, runner, batches=6, **options):
    counted.clear()
    adapter = runner.adapter if isinstance(runner, regtta.Monitor) else runner
    list(adapter.run(monitored_stream.stream(batches, **options)))
    return list(counted)


def test_looking_costs_one_pass_of_the_source_model_and_none_while_nothing_moves(counted):
    still = attach(regtta.Monitor(), monitored_stream.adapter(regtta.NoAdaptation()))
    assert passes_of(counted, still) == passes_of(counted, monitored_stream.adapter(regtta.NoAdaptation()))
    assert passes_of(counted, attach(regtta.Monitor(), monitored_stream.adapter())) == [False, True] * 6
    assert (
        passes_of(counted, attach(regtta.Monitor(every=3), monitored_stream.adapter()))
        == [False, True, False, False] * 2
    )


def test_guards_that_asked_for_that_pass_have_paid_for_it(counted):
    alone = passes_of(counted, monitored_stream.adapter(guards=SAFE), 30, shift=1.0)
    assert passes_of(counted, attach(regtta.Monitor(), monitored_stream.adapter(guards=SAFE)), 30, shift=1.0) == alone
    assert True in alone


def test_the_source_pass_is_the_models_own_and_the_answered_one_gave_the_predictions():
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


def test_the_head_of_the_source_is_known_after_the_adapter_replaced_its_own():
    model = small_models.mlp()
    adapter = monitored_stream.adapter(model=model)
    with torch.no_grad():
        adapter.model[6].weight.add_(1.0)
    assert torch.equal(adapter.source_head().weight, model[6].weight)
    assert torch.equal(adapter.source_head().bias, model[6].bias)


def test_signals_tell_the_step():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    assert monitor.signals is None
    for x in monitored_stream.stream(3, shift=1.0):
        step = monitor.adapter.adapt(x)
    told = monitor.signals
    assert (told.index, told.samples, told.learned, told.reason) == (2, 32, True, "")
    assert (told.loss, told.displacement) == (step.diagnostics.loss, step.diagnostics.displacement)
    monitor.adapter.adapt(torch.full((4, 5), torch.nan))
    assert monitor.signals.reason == "4 of 4 samples are not finite"
    assert not monitor.signals.learned


def test_the_risk_is_nought_for_the_source_model_and_a_share_else():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter(regtta.NoAdaptation()))
    list(monitor.adapter.run(monitored_stream.stream(4, shift=1.0)))
    assert monitor.signals.risk == 0.0
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    monitor.adapter.adapt(monitored_stream.stream(1, size=8)[0])
    assert monitor.signals.risk is None
    list(monitor.adapter.run(monitored_stream.stream(8, shift=1.0)))
    assert 0 < monitor.signals.risk < 1


def test_batches_since_helped_begin_with_those_before_it_ever_did():
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


def test_a_resumed_monitor_goes_on_as_if_never_stopped(tmp_path):
    batches = [*monitored_stream.stream(9), *monitored_stream.stream(9, shift=1.0, seed=4)]
    whole, news = attach(regtta.Monitor(alarms=ALARMS), monitored_stream.adapter()), Kept()
    whole.writers = (news,)
    list(whole.adapter.run(batches))
    for stop in (1, 8, 13):
        first = attach(regtta.Monitor(alarms=ALARMS), monitored_stream.adapter())
        list(first.adapter.run(batches[:stop]))
        torch.save([first.state_dict(), first.adapter.state_dict()], tmp_path / "state.pt")
        mine, adapters = torch.load(tmp_path / "state.pt", weights_only=True)
        again, rest = monitored_stream.adapter(), Kept()
        again.load_state_dict(adapters)
        resumed = attach(regtta.Monitor(alarms=ALARMS, writers=[rest]), again)
        resumed.load_state_dict(mine)
        list(resumed.adapter.run(batches[stop:]))
        assert rest.news == news.news[stop:]
        assert resumed.raised == whole.raised
        assert same(resumed.state_dict(), whole.state_dict())
    assert whole.raised


def test_a_state_of_another_monitor_is_refused():
    state = attach(regtta.Monitor(alarms=ALARMS), monitored_stream.adapter()).state_dict()
    with pytest.raises(MismatchError, match="other alarms"):
        attach(regtta.Monitor(), monitored_stream.adapter()).load_state_dict(state)
    with pytest.raises(MismatchError, match="other options"):
        attach(regtta.Monitor(alarms=ALARMS, memory=7), monitored_stream.adapter()).load_state_dict(state)


def test_reset_forgets_the_stream():
    monitor = attach(regtta.Monitor(), monitored_stream.adapter())
    fresh = monitor.state_dict()
    list(monitor.adapter.run(monitored_stream.stream(20, shift=1.0)))
    monitor.adapter.reset()
    assert monitor.signals is None
    assert same(monitor.state_dict(), fresh)
    assert monitor.adapter.adapt(small_models.table(8)).index == 0


def test_what_a_writer_or_a_callback_raises_is_counted_and_logged_once_without_its_words(caplog):
    def page_me(event):
        raise RuntimeError(f"secret in {event}")

    kept = Kept()
    monitor = attach(regtta.Monitor(writers=[Broken(), kept], on_event=[page_me]), monitored_stream.adapter())
    with caplog.at_level(logging.WARNING, logger="regtta"), monitor:
        list(monitor.adapter.run(monitored_stream.stream(20, shift=1.5)))
    assert len(kept.news) == 20
    assert monitor.failures["Broken"] == 21
    assert monitor.failures[page_me.__qualname__] == sum(monitor.raised.values()) > 0
    assert len(caplog.records) == 2
    assert "OSError" in caplog.text
    assert "secret" not in caplog.text


def test_a_callback_may_call_the_adapter_and_the_monitor():
    calls = []

    def back_to_source(event):
        calls.append((event.alarm, monitor.adapter.rollback(), monitor.active[event.alarm], monitor.signals.index))
        monitor.adapter.freeze()

    monitor = attach(regtta.Monitor(alarms=[ShiftAlarm()], on_event=[back_to_source]), monitored_stream.adapter())
    done = threading.Thread(
        target=lambda: list(monitor.adapter.run(monitored_stream.stream(12, shift=1.5))), daemon=True
    )
    done.start()
    done.join(timeout=30)
    assert not done.is_alive()
    assert calls == [("ShiftAlarm", "source", True, calls[0][3])]
    assert monitor.signals.evidence.disagreement == 0.0
    assert monitor.signals.risk == 0.0


def test_an_alarm_of_ones_own():
    class Tenth(Alarm):
        action = "Count on."

        def start(self):
            return TenthWatch()

    class TenthWatch(AlarmState):
        def check(self, signals):
            return "ten" if signals.index == 10 else None

    events = []
    list(
        attach(regtta.Monitor(alarms=[Tenth()], on_event=[events.append]), monitored_stream.adapter()).run(
            monitored_stream.stream(15)
        )
    )
    assert [(event.kind, event.index, event.message) for event in events] == [
        ("raised", 10, "ten"),
        ("cleared", 11, "ten"),
    ]


def test_threads_take_turns():
    monitor = attach(regtta.Monitor(writers=[kept := Kept()]), monitored_stream.adapter())
    threads = [
        threading.Thread(target=lambda: list(monitor.adapter.run(monitored_stream.stream(10)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [news.signals.index for news in kept.news] == list(range(40))


def test_it_works_inside_inference_mode_and_out_of_it_again():
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
def test_a_stream_far_beyond_everything_is_told_and_goes_on(size):
    monitor = attach(regtta.Monitor(writers=[kept := Kept()]), monitored_stream.adapter())
    for x in monitored_stream.stream(8):
        monitor.adapter.adapt(x * size)
    assert len(kept.news) == 8
    assert monitor.signals.evidence is None or monitor.signals.evidence.beyond_chance > 1
    assert not monitor.failures


def test_without_statistics_or_with_odd_options_there_is_no_monitor():
    with pytest.raises(StatisticsError, match="regtta.collect"):
        attach(regtta.Monitor(), regtta.Adapter(small_models.mlp(), regtta.BNAdapt()))
    for odd in ({"every": 0}, {"memory": 0}, {"least": 0}, {"level": 0.0}, {"tolerance": -1.0}):
        with pytest.raises(OptionError, match=next(iter(odd))):
            attach(regtta.Monitor(**odd), monitored_stream.adapter())
