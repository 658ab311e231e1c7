"""Order and effects of callbacks over a stream."""

import threading
from collections import Counter

import pytest
import torch

import regtta
from helpers import monitored_stream, small_models
from helpers.attaching import Views
from regtta.errors import OptionError, StatisticsError
from regtta.guards import DEFAULT, Guard, GuardState, Rollback

TIMEOUT = 60  # seconds after which a thread counts as stuck
BATCHES = small_models.table(16 * 6, shift=1.0, scale=1.5, seed=2).split(16)


class Log(regtta.Callback):
    """Appends every call to ``calls``, with the name of the callback and the index or argument of the call."""

    def __init__(self, calls, name="", views=()):
        self.calls, self.name, self.views = calls, name, views

    def _log(self, *call):
        self.calls.append((self.name, *call))

    def on_start(self, adapter):
        self._log("start")

    def before_step(self, adapter, inputs):
        self._log("before", inputs)

    def on_step(self, adapter, step):
        self._log("step", step.index)

    def wants_view(self, index):
        self._log("wants", index)
        return index in self.views

    def on_view(self, adapter, view):
        self._log("view", view.step.index)

    def on_rollback(self, adapter, to):
        self._log("rollback", to)

    def on_end(self, adapter):
        self._log("end")


def names(calls, *kinds):
    """Return the calls of some kinds, without the arguments of before_step."""
    return [call[:2] if call[1] == "before" else call for call in calls if call[1] in kinds]


def bn_adapter(*callbacks, **options):
    return regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), head="6", callbacks=callbacks, **options)


def in_thread(work):
    """Run ``work`` in another thread, and return its result; fail if it does not return."""
    results, errors = [], []

    def call():
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert not thread.is_alive(), "deadlock"
    if errors:
        raise errors[0]
    return results[0]


# --- order ---------------------------------------------------------------------------------------


def test_the_order_of_calls_over_a_stream():
    calls = []
    adapter = bn_adapter(Log(calls, "a", views=(1,)), Log(calls, "b", views=(0, 1)))
    assert calls == [("a", "start"), ("b", "start")]
    calls.clear()
    kinds = ("start", "before", "step", "view", "rollback", "end")
    adapter.adapt(BATCHES[0])
    assert names(calls, *kinds) == [
        ("a", "before"), ("b", "before"), ("a", "step", 0), ("b", "step", 0), ("b", "view", 0),
    ]  # fmt: skip
    calls.clear()
    adapter.adapt(BATCHES[1])
    assert names(calls, *kinds) == [
        ("a", "before"), ("b", "before"), ("a", "step", 1), ("b", "step", 1), ("a", "view", 1), ("b", "view", 1),
    ]  # fmt: skip
    calls.clear()
    adapter.adapt(BATCHES[2])
    assert names(calls, *kinds) == [("a", "before"), ("b", "before"), ("a", "step", 2), ("b", "step", 2)]
    calls.clear()
    adapter.reset()
    assert calls == [("a", "start"), ("b", "start")]
    adapter.adapt(BATCHES[0])
    assert names(calls, "step")[0] == ("a", "step", 0)  # numbered from 0 again


def test_every_callback_is_asked_once_per_batch_whether_it_wants_a_view():
    calls = []
    list(bn_adapter(Log(calls, "a"), Log(calls, "b", views=(1,))).run(BATCHES[:3]))
    assert names(calls, "wants") == [(name, "wants", index) for index in range(3) for name in "ab"]


def test_before_step_receives_the_inputs_and_the_model_before_the_step():
    seen = []

    class Before(regtta.Callback):
        def before_step(self, adapter, inputs):
            seen.append((inputs, adapter.predict(BATCHES[0])))

        def on_step(self, adapter, step):
            seen.append((step.predictions, adapter.predict(BATCHES[0])))

    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), inputs="x", callbacks=[Before()])
    source = small_models.mlp()
    with torch.no_grad():
        untouched = source(BATCHES[0])
    step = adapter.adapt({"x": BATCHES[1], "y": torch.zeros(16)})
    (inputs, before), (predictions, after) = seen
    assert torch.equal(inputs, BATCHES[1])
    assert torch.equal(before, untouched)
    assert predictions is step.predictions
    assert not torch.equal(after, untouched)
    assert torch.equal(after, adapter.predict(BATCHES[0]))


def test_a_view_holds_the_passes_of_both_models():
    views, model = Views(), small_models.mlp()
    adapter = regtta.Adapter(model, regtta.BNAdapt(), head="6", callbacks=[views])
    steps = list(adapter.run(BATCHES))
    assert [view.step for view in views.views] == steps
    for view, x in zip(views.views, BATCHES, strict=True):
        assert torch.equal(view.answered.outputs, view.step.predictions)
        with torch.no_grad():
            torch.testing.assert_close(view.source.outputs, model(x))


def test_rejected_batches_are_reported_too():
    calls = []
    list(bn_adapter(Log(calls)).run([BATCHES[0], BATCHES[1][:1], BATCHES[2]]))
    assert names(calls, "step") == [("", "step", index) for index in range(3)]


def test_a_failed_batch_calls_before_step_but_not_on_step():
    calls = []
    adapter = bn_adapter(Log(calls))
    with pytest.raises(RuntimeError, match="shapes"):
        adapter.adapt(torch.zeros(16, 9))
    assert names(calls, "start", "before", "step", "wants", "view") == [("", "start"), ("", "before")]
    adapter.adapt(BATCHES[0])
    assert names(calls, "step") == [("", "step", 0)]


# --- rollback ------------------------------------------------------------------------------------


class RollbackAt(Guard):
    """Guard that rolls back to ``to`` at the third step."""

    def __init__(self, to):
        self.to = to

    def start(self, context):
        return _RollbackAtState(self.to)


class _RollbackAtState(GuardState):
    def __init__(self, to):
        self.to, self.steps = to, 0

    def after_step(self, stats):
        self.steps += 1
        if self.steps == 2:
            return regtta.guards.MarkGood()
        return Rollback("enough", self.to) if self.steps == 3 else None


@pytest.mark.parametrize("to", ["source", "good"])
def test_a_rollback_by_a_guard_is_reported_before_its_step(to):
    calls = []
    adapter = bn_adapter(Log(calls, "a"), Log(calls, "b"), guards=(*DEFAULT, RollbackAt(to)))
    steps = list(adapter.run(BATCHES[:4]))
    assert steps[2].diagnostics.verdict.returned == to
    assert names(calls, "step", "rollback")[4:] == [
        ("a", "rollback", to), ("a", "step", 2), ("b", "rollback", to), ("b", "step", 2), ("a", "step", 3),
        ("b", "step", 3),
    ]  # fmt: skip


def test_a_rollback_by_the_user_is_reported_after_the_model_is_restored():
    predictions, model = [], small_models.mlp()

    class Predict(regtta.Callback):
        def on_rollback(self, adapter, to):
            predictions.append((to, adapter.predict(BATCHES[0])))

    adapter = regtta.Adapter(model, regtta.BNAdapt(), callbacks=[Predict()], head="6")
    list(adapter.run(BATCHES))
    assert adapter.rollback() == "source"
    ((to, prediction),) = predictions
    assert to == "source"
    with torch.no_grad():
        assert torch.equal(prediction, model(BATCHES[0]))


# --- end -----------------------------------------------------------------------------------------


def test_on_end_is_called_once_at_close_and_again_after_a_reset():
    calls = []
    adapter = bn_adapter(Log(calls, "a"), Log(calls, "b"))
    adapter.adapt(BATCHES[0])
    adapter.close()
    adapter.close()
    assert names(calls, "end") == [("a", "end"), ("b", "end")]
    adapter.adapt(BATCHES[1])  # still usable
    adapter.close()
    assert len(names(calls, "end")) == 2
    adapter.reset()
    adapter.close()
    assert len(names(calls, "end")) == 4


def test_the_context_manager_closes():
    calls = []
    with bn_adapter(Log(calls)) as adapter:
        adapter.adapt(BATCHES[0])
        assert not names(calls, "end")
    assert names(calls, "end") == [("", "end")]
    adapter.close()
    assert names(calls, "end") == [("", "end")]


def test_the_context_manager_closes_after_an_error_which_it_raises():
    calls = []
    with pytest.raises(KeyError, match="mine"), bn_adapter(Log(calls)):
        raise KeyError("mine")
    assert names(calls, "end") == [("", "end")]


def test_an_error_in_on_end_does_not_prevent_the_other_on_end_calls():
    calls = []

    class Fails(regtta.Callback):
        def on_end(self, adapter):
            raise OSError("full")

    adapter = bn_adapter(Log(calls, "a"), Fails(), Log(calls, "b"))
    with pytest.raises(OSError, match="full"):
        adapter.close()
    assert names(calls, "end") == [("a", "end"), ("b", "end")]
    adapter.close()
    assert len(names(calls, "end")) == 2


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["on_step", "on_view"])
def test_an_error_in_a_callback_is_raised_and_the_step_is_kept(where):
    class Fails(regtta.Callback):
        def wants_view(self, index):
            return True

    def fail(*_):
        raise ZeroDivisionError("mine")

    failing = Fails()
    setattr(failing, where, fail)
    adapter, plain = bn_adapter(failing), bn_adapter()
    with pytest.raises(ZeroDivisionError, match="mine"):
        adapter.adapt(BATCHES[0])
    plain.adapt(BATCHES[0])
    assert torch.equal(adapter.predict(BATCHES[1]), plain.predict(BATCHES[1]))
    delattr(failing, where)
    for x in BATCHES[1:]:  # the stream continues as if nothing had happened
        step, expected = adapter.adapt(x), plain.adapt(x)
        assert step.index == expected.index
        assert torch.equal(step.predictions, expected.predictions)
    assert in_thread(lambda: adapter.predict(BATCHES[0])).isfinite().all()  # no lock is held


def test_an_error_before_the_step_prevents_it():
    class Fails(regtta.Callback):
        def before_step(self, adapter, inputs):
            raise ZeroDivisionError

    adapter = bn_adapter(Fails())
    with pytest.raises(ZeroDivisionError):
        adapter.adapt(BATCHES[0])
    assert torch.equal(adapter.predict(BATCHES[0]), bn_adapter().predict(BATCHES[0]))
    assert in_thread(adapter.summary).count("0 of 0 batches") == 1


# --- calls of the adapter from a callback --------------------------------------------------------


class Calls(regtta.Callback):
    """Calls ``act`` with the adapter in ``where`` of the batch with index 2."""

    def __init__(self, where, act):
        self.index, self.result = -1, None
        setattr(self, where, lambda adapter, *_: self._call(adapter, act))
        self.views = where == "on_view"

    def _call(self, adapter, act):
        self.index += 1
        if self.index == 2:
            self.result = act(adapter)

    def wants_view(self, index):
        return self.views


HOOKS = ("before_step", "on_step", "on_view")
ACTS = {
    "predict": lambda adapter: adapter.predict(BATCHES[5]),
    "features": lambda adapter: adapter.features(BATCHES[5]),
    "state_dict": lambda adapter: adapter.state_dict(),
    "summary": lambda adapter: adapter.summary(),
    "export": lambda adapter: adapter.export(),
    "freeze": lambda adapter: adapter.freeze(),
    "rollback": lambda adapter: adapter.rollback(),
    "reset": lambda adapter: adapter.reset(),
    "close": lambda adapter: adapter.close(),
}
CHANGES = {"freeze", "rollback", "reset"}


@pytest.mark.parametrize("where", HOOKS)
@pytest.mark.parametrize("name", ACTS)
def test_a_callback_may_call_the_adapter(name, where):
    """The same as the call by the user between two batches."""
    called = bn_adapter(Calls(where, ACTS[name]))
    done = in_thread(lambda: list(called.run(BATCHES)))
    by_hand, expected = bn_adapter(), []
    for index, x in enumerate(BATCHES):
        if index == 2 and where == "before_step":
            ACTS[name](by_hand)
        expected.append(by_hand.adapt(x))
        if index == 2 and where != "before_step":
            ACTS[name](by_hand)
    assert [(step.index, step.reason) for step in done] == [(step.index, step.reason) for step in expected]
    for step, other in zip(done, expected, strict=True):
        assert torch.equal(step.predictions, other.predictions)
    assert torch.equal(called.predict(BATCHES[0]), by_hand.predict(BATCHES[0]))
    if name in CHANGES:  # the call had an effect
        plain = bn_adapter()
        list(plain.run(BATCHES))
        assert not torch.equal(called.predict(BATCHES[0]), plain.predict(BATCHES[0]))


@pytest.mark.parametrize("where", HOOKS)
@pytest.mark.parametrize("name", ["predict", "features", "state_dict", "summary", "export", "freeze"])
def test_a_thread_that_a_callback_waits_for_may_call_the_adapter(name, where):
    callback = Calls(where, lambda adapter: (in_thread(lambda: ACTS[name](adapter)), ACTS[name](adapter)))
    adapter = bn_adapter(callback)
    in_thread(lambda: list(adapter.run(BATCHES[:3])))
    elsewhere, here = callback.result
    if name in ("predict", "features"):
        assert torch.equal(elsewhere, here)
    assert adapter.adapt(BATCHES[3]).reason == ("frozen by hand" if name == "freeze" else "")


@pytest.mark.parametrize("name", ["rollback", "reset", "adapt"])
def test_other_threads_change_the_stream_only_after_the_callbacks_of_a_batch(name):
    """Their callbacks would otherwise be called in the middle of those of the batch."""
    calls, asked, threads = [], threading.Event(), []

    class Slow(regtta.Callback):
        def on_step(self, adapter, step):
            if threads:
                return
            act = {"adapt": lambda: adapter.adapt(BATCHES[1])}.get(name) or (lambda: ACTS[name](adapter))
            threads.append(threading.Thread(target=lambda: (asked.set(), act()), daemon=True))
            threads[0].start()
            asked.wait(TIMEOUT)
            threads[0].join(0.2)  # long enough to interrupt
            calls.append(("slow", "done"))

    adapter = bn_adapter(Slow(), Log(calls, "log", views=(0,)))
    calls.clear()
    adapter.adapt(BATCHES[0])
    threads[0].join(TIMEOUT)
    assert not threads[0].is_alive(), "deadlock"
    found = names(calls, "done", "step", "view", "rollback", "start")
    later = {"rollback": ("log", "rollback", "source"), "reset": ("log", "start"), "adapt": ("log", "step", 1)}
    assert found == [("slow", "done"), ("log", "step", 0), ("log", "view", 0), later[name]]


def test_a_callback_may_adapt_to_another_batch():
    class Again(regtta.Callback):
        """Adapts twice to every batch that came from the user."""

        inside = False

        def on_step(self, adapter, step):
            if not self.inside:
                self.inside = True
                adapter.adapt(BATCHES[step.index // 2])
                self.inside = False

    adapter, plain = bn_adapter(Again()), bn_adapter()
    in_thread(lambda: list(adapter.run(BATCHES)))
    for x in BATCHES:
        plain.adapt(x)
        plain.adapt(x)
    assert torch.equal(adapter.predict(BATCHES[0]), plain.predict(BATCHES[0]))


def test_threads_that_adapt_have_their_callbacks_called_one_batch_at_a_time():
    calls, inside = [], []

    class Alone(Log):
        def before_step(self, adapter, inputs):
            inside.append(threading.get_ident())
            super().before_step(adapter, inputs)

        def on_view(self, adapter, view):
            super().on_view(adapter, view)
            threading.Event().wait(0.001)  # give other threads a chance to run
            assert len(inside) == 1
            assert inside.pop() == threading.get_ident()

    adapter, gate, errors = bn_adapter(Alone(calls, views=range(60))), threading.Barrier(4), []
    calls.clear()

    def work():
        gate.wait(TIMEOUT)
        try:
            for step in adapter.run(BATCHES[:5] * 3):
                assert step.adapted
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    assert not errors
    assert [call[1] for call in calls] == ["before", "wants", "step", "view"] * 60
    assert [call[2] for call in calls if call[1] == "view"] == list(range(60))


def test_other_threads_can_predict_while_a_callback_runs():
    predicted = []

    class Slow(regtta.Callback):
        def on_step(self, adapter, step):
            predicted.append(in_thread(lambda: adapter.predict(BATCHES[3])))

    adapter, plain = bn_adapter(Slow()), bn_adapter()
    adapter.adapt(BATCHES[0])
    plain.adapt(BATCHES[0])
    assert torch.equal(predicted[0], plain.predict(BATCHES[3]))


def test_inside_paused_no_other_thread_adapts_and_predictions_continue():
    adapter, done = bn_adapter(), threading.Event()
    thread = threading.Thread(target=lambda: (adapter.adapt(BATCHES[0]), done.set()), daemon=True)
    with adapter.paused():
        before = adapter.state_dict()
        thread.start()
        assert in_thread(lambda: adapter.predict(BATCHES[1])).isfinite().all()
        assert not done.wait(0.2)
        assert adapter.state_dict()["index"] == before["index"] == 0
        assert adapter.adapt(BATCHES[1]).index == 0  # by this thread
    thread.join(TIMEOUT)
    assert done.is_set()
    assert adapter.state_dict()["index"] == 2


# --- adding and rejecting ------------------------------------------------------------------------


def test_an_added_callback_receives_later_batches():
    calls = []
    adapter = bn_adapter(Log(calls, "a"))
    adapter.adapt(BATCHES[0])
    calls.clear()
    adapter.add_callback(Log(calls, "b"))
    adapter.adapt(BATCHES[1])
    assert names(calls, "start", "step") == [("b", "start"), ("a", "step", 1), ("b", "step", 1)]


def test_an_added_callback_that_fails_to_start_leaves_the_adapter_unchanged():
    calls = []

    class Fails(Log):
        def on_start(self, adapter):
            raise ZeroDivisionError

    first = Log(calls, "a")
    adapter = bn_adapter(first)
    adapter.adapt(BATCHES[0])
    before = adapter.predict(BATCHES[1])
    calls.clear()
    with pytest.raises(ZeroDivisionError):
        adapter.add_callback(Fails(calls, "b"))
    with pytest.raises(StatisticsError, match="regtta.collect"):
        adapter.add_callback(regtta.Monitor())  # there are no statistics
    assert adapter.callbacks == (first,)
    assert calls == []
    assert torch.equal(adapter.predict(BATCHES[1]), before)
    adapter.adapt(BATCHES[1])
    assert Counter(call[0] for call in calls) == {"a": 3}  # before, wants, step
    assert in_thread(lambda: adapter.adapt(BATCHES[2])).index == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (regtta.Callback, r"found the class Callback, of which Callback\(\) is one"),
        (regtta.Monitor, r"found the class Monitor, of which Monitor\(\) is one"),
        (print, "found <built-in function print>"),
        (lambda adapter, step: None, "found <function"),
        (None, "found None"),
        ("monitor", "found 'monitor'"),
    ],
)
def test_callbacks_must_be_instances(wrong, words):
    with pytest.raises(OptionError, match=f"Expected callbacks to be a tuple of instances of Callback, {words}"):
        bn_adapter(regtta.Callback(), wrong)
    adapter = bn_adapter()
    with pytest.raises(OptionError, match=words):
        adapter.add_callback(wrong)
    assert adapter.callbacks == ()
    assert adapter.adapt(BATCHES[0]).adapted


@pytest.mark.parametrize("wrong", [regtta.Callback(), "monitor", 3])
def test_callbacks_must_be_a_sequence(wrong):
    with pytest.raises(OptionError, match="Expected callbacks to be a tuple"):
        regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), callbacks=wrong)


@pytest.mark.parametrize("kind", ["monitor", "checkpoint"])
def test_a_callback_of_another_adapter_is_rejected(kind, tmp_path):
    callback = {"monitor": regtta.Monitor(), "checkpoint": regtta.Checkpoint(tmp_path / "a.safetensors", every=1)}[kind]
    first, second = monitored_stream.adapter(), monitored_stream.adapter()
    first.add_callback(callback)
    first.adapt(next(iter(monitored_stream.stream(1))))
    with pytest.raises(OptionError, match="another adapter"):
        second.add_callback(callback)
    with pytest.raises(OptionError, match="another adapter"):
        regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), head="6", callbacks=[callback])
    assert second.callbacks == ()
    assert callback.adapter is first
    first.reset()  # the same adapter may start again
    assert callback.adapter is first


def test_two_callbacks_with_the_same_state_key_are_rejected(tmp_path):
    checkpoint = regtta.Checkpoint(tmp_path / "a.safetensors")
    adapter = monitored_stream.adapter()
    adapter.add_callback(regtta.Monitor())
    adapter.add_callback(regtta.Monitor())
    with pytest.raises(OptionError, match=r"different names in the checkpoint, found \['monitor', 'monitor'\]"):
        adapter.add_callback(checkpoint)
    assert len(adapter.callbacks) == 2
    assert checkpoint.adapter is None
