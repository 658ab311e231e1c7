import dataclasses

import pytest
import torch

import regtta
from helpers import small_models

PREDICTIONS = torch.zeros(2, 3)


def make_step(loss=0.5, reason="", returned="", excluded_rows=(), index=7):
    verdict = regtta.Verdict(learned=not reason, reason=reason, returned=returned)
    return regtta.Step(index, PREDICTIONS, regtta.Diagnostics(loss, 1.0, 0.25, verdict), excluded_rows)


@pytest.mark.parametrize(
    ("step", "adapted", "loss", "reason"),
    [
        (make_step(), True, 0.5, ""),
        (make_step(loss=None), True, None, ""),
        (make_step(loss=0.0), True, 0.0, ""),
        (make_step(reason="no shift"), False, 0.5, "no shift"),
        (make_step(loss=None, reason="frozen by hand"), False, None, "frozen by hand"),
    ],
)
def test_properties_of_a_step_are_those_of_its_diagnostics(step, adapted, loss, reason):
    assert step.adapted is adapted
    assert step.loss == loss
    assert step.reason == reason


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (make_step(), "Step(index=7, predictions=(2, 3), adapted=True, loss=0.5)"),
        (make_step(loss=None), "Step(index=7, predictions=(2, 3), adapted=True)"),
        (make_step(loss=0.0), "Step(index=7, predictions=(2, 3), adapted=True, loss=0)"),
        (make_step(loss=1234567.0), "Step(index=7, predictions=(2, 3), adapted=True, loss=1.235e+06)"),
        (make_step(loss=float("nan")), "Step(index=7, predictions=(2, 3), adapted=True, loss=nan)"),
        (
            make_step(loss=None, reason="it's flat"),
            'Step(index=7, predictions=(2, 3), adapted=False, reason="it\'s flat")',
        ),
        (
            make_step(excluded_rows=(0, 4)),
            "Step(index=7, predictions=(2, 3), adapted=True, loss=0.5, excluded_rows=(0, 4))",
        ),
    ],
)
def test_repr_of_a_step_is_one_short_line(step, expected):
    assert repr(step) == expected


@pytest.mark.parametrize("name", ["index", "predictions", "diagnostics", "adapted", "loss", "reason"])
def test_a_step_is_frozen(name):
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(make_step(), name, 1)


def test_properties_of_the_steps_of_an_adapter():
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt())
    learned, rejected = adapter.adapt(small_models.table(8)), adapter.adapt(small_models.table(1))
    assert (learned.index, learned.adapted, learned.loss, learned.reason) == (0, True, None, "")
    assert repr(learned) == "Step(index=0, predictions=(8, 1), adapted=True)"
    assert (rejected.index, rejected.adapted) == (1, False)
    reason = "a batch of 1 has no variance"
    assert rejected.reason == reason
    assert repr(rejected) == f"Step(index=1, predictions=(1, 1), adapted=False, reason='{reason}')"


def test_excluded_rows_are_in_the_repr():
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt())
    batch = small_models.table(8)
    batch[3, 0] = torch.nan
    assert repr(adapter.adapt(batch)) == "Step(index=0, predictions=(8, 1), adapted=True, excluded_rows=(3,))"


def test_methods_of_the_base_callback_do_nothing():
    callback, step = regtta.Callback(), make_step()
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt())
    assert regtta.Callback.state_key is None
    assert callback.wants_view(0) is False
    assert callback.state_dict() == {}
    handled = [
        callback.on_start(adapter),
        callback.before_step(adapter, PREDICTIONS),
        callback.on_step(adapter, step),
        callback.on_rollback(adapter, "source"),
        callback.on_end(adapter),
        callback.load_state_dict({"anything": 1}),
    ]
    assert handled == [None] * 6
    assert vars(callback) == {}


def test_a_stream_with_a_base_callback_equals_one_without():
    model, batches = small_models.mlp(), small_models.table(48, shift=1.0).split(16)
    plain, followed = (regtta.Adapter(model, regtta.BNAdapt(), callbacks=c) for c in ((), [regtta.Callback()]))
    for x in batches:
        assert torch.equal(plain.adapt(x).predictions, followed.adapt(x).predictions)
    assert torch.equal(plain.predict(batches[0]), followed.predict(batches[0]))
