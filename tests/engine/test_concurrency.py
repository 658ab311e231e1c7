"""One adapter shared by several threads: predictions are consistent and updates are serialized."""

import copy
import threading

import pytest
import torch

import regtta
from helpers import faults, small_models
from regtta import guards

TIMEOUT = 120  # seconds after which a thread counts as stuck
PROBE = small_models.table(8, shift=0.7, seed=5)
UPDATES = faults.ADAPTING_THREADS * faults.UPDATES_A_THREAD
STREAM = small_models.table(UPDATES * 16, shift=1.0, scale=1.5, seed=2).split(16)
METHODS = {
    "ssa": (regtta.SSA(k=4, lr=1e-2), guards.DEFAULT),
    "blended": (regtta.SSA(k=4, window=16, batch_norm="blended", lr=1e-2), guards.DEFAULT),
    "bn_adapt": (regtta.BNAdapt(), guards.DEFAULT),
    "safe": (regtta.SSA(k=4, lr=1e-2), regtta.SAFE),
}


def adapter(name="ssa"):
    method, adapter_guards = METHODS[name]
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, method, source, guards=adapter_guards)


def run_concurrently(*functions):
    """Run all functions concurrently, and raise the first error of any of them."""
    barrier, errors = threading.Barrier(len(functions)), []

    def run(function):
        barrier.wait(TIMEOUT)
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "stuck"
    if errors:
        raise errors[0]


def bits(tensor):
    return tensor.numpy().tobytes()


def assert_same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a.keys() - {"begun"}:
            assert_same(a[key], b[key])
    elif isinstance(a, torch.Tensor):
        assert bits(a) == bits(b)
    else:
        assert a == b


@pytest.mark.parametrize("name", METHODS)
def test_every_prediction_comes_from_a_model_between_two_updates(name):
    shared, probes, steps = adapter(name), [], {}

    def predict():
        for _ in range(faults.PREDICTIONS_A_THREAD):
            probes.append(bits(shared.predict(PROBE)))

    def adapt(numbers):
        for number in numbers:
            step = shared.adapt(STREAM[number])
            assert step.index not in steps
            steps[step.index] = number, step

    run_concurrently(
        *[predict] * faults.PREDICTING_THREADS,
        *(lambda s=s: adapt(range(s, UPDATES, faults.ADAPTING_THREADS)) for s in range(faults.ADAPTING_THREADS)),
    )
    assert sorted(steps) == list(range(UPDATES))
    assert len(probes) == faults.PREDICTING_THREADS * faults.PREDICTIONS_A_THREAD
    serial = adapter(name)
    possible = {bits(serial.predict(PROBE))}
    for index in range(UPDATES):
        number, step = steps[index]
        again = serial.adapt(STREAM[number])
        assert bits(again.predictions) == bits(step.predictions)
        assert again.diagnostics == step.diagnostics
        possible.add(bits(serial.predict(PROBE)))
    assert len(possible) > 20  # the model changed
    assert set(probes) <= possible
    assert_same(serial.state_dict(), shared.state_dict())


def test_all_other_methods_under_concurrent_load():
    """No exception and no deadlock occurs, and every returned object is consistent."""
    shared, finished = adapter("safe"), threading.Event()
    expected = adapter().state_dict().keys()

    def repeat(act, times=30):
        def function():
            for _ in range(times):
                act()

        return function

    def export():
        model = shared.export()
        assert not any(module.training for module in model.modules())
        assert model(PROBE).isfinite().all()

    def state():
        found = shared.state_dict()
        assert found.keys() == expected
        other = copy.deepcopy(found)
        adapter("safe").load_state_dict(other)
        shared.load_state_dict(other)

    def freeze():
        shared.freeze()
        before = bits(shared.predict(PROBE))
        finished.wait(0.001)
        shared.unfreeze()
        return before

    run_concurrently(
        repeat(lambda: shared.adapt(STREAM[0]), 60),
        repeat(lambda: shared.adapt(STREAM[1]), 60),
        repeat(lambda: shared.predict(PROBE), 100),
        repeat(lambda: shared.features(PROBE), 60),
        repeat(shared.reset),
        repeat(shared.rollback),
        repeat(freeze),
        repeat(export),
        repeat(state, 10),
        repeat(lambda: shared.provenance().batches),
        repeat(lambda: shared.head),
    )
    shared.reset()
    new = adapter("safe")
    for x in STREAM[:5]:
        assert bits(shared.adapt(x).predictions) == bits(new.adapt(x).predictions)


@pytest.mark.parametrize("act", ["freeze", "unfreeze"])
def test_freezing_waits_for_an_update_in_progress(act):
    shared, done = adapter(), threading.Event()

    def call():
        getattr(shared, act)()
        done.set()

    thread = threading.Thread(target=call, daemon=True)
    with shared._lock.writing():  # as during an update
        thread.start()
        while not shared._lock._queue:
            pass  # until the thread is queued
        assert not done.is_set()
    thread.join(TIMEOUT)
    assert done.is_set()


def test_the_head_is_detected_once_under_concurrent_first_batches():
    model, indices = small_models.mlp(3), []
    shared = regtta.Adapter(model, regtta.Tent())
    assert shared.head is None

    def adapt():
        indices.extend(shared.adapt(x).index for x in STREAM[:5])

    def predict():
        for _ in range(20):
            assert shared.predict(PROBE).isfinite().all()
            assert shared.head in (None, "6")

    run_concurrently(adapt, adapt, adapt, predict, predict)
    assert sorted(indices) == list(range(15))
    assert shared.head == "6"


def test_a_failed_first_batch_leaves_the_adapter_unstarted():
    shared = regtta.Adapter(small_models.mlp(1), regtta.Tent())
    for _ in range(2):
        with pytest.raises(regtta.RegttaError, match="no classification head"):
            shared.adapt(STREAM[0])
    assert shared.head is None
    assert shared.predict(PROBE).isfinite().all()


def test_an_adapter_frozen_before_its_first_batch_stays_frozen():
    shared = regtta.Adapter(small_models.mlp(3), regtta.Tent())
    shared.freeze()
    assert shared.adapt(STREAM[0]).diagnostics.verdict.reason == "frozen by hand"
    shared.unfreeze()
    assert shared.adapt(STREAM[0]).diagnostics.verdict.learned


@pytest.mark.parametrize("many", ["adapt", "predict"])
def test_neither_adapt_nor_predict_starves(many):
    """Four threads call one method in a loop until a fifth has finished its calls of the other method."""
    shared, done = adapter(), threading.Event()
    calls = {"adapt": lambda: shared.adapt(STREAM[0]), "predict": lambda: shared.predict(PROBE)}
    few = next(kind for kind in calls if kind != many)

    def call_in_a_loop():
        while not done.is_set():
            calls[many]()

    def call_repeatedly():
        try:
            for _ in range(50):
                calls[few]()
        finally:
            done.set()

    run_concurrently(*[call_in_a_loop] * 4, call_repeatedly)
