"""Methods by name, statistics by path, the model and the device of an adapter."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.attaching import Views
from helpers.states import assert_same
from regtta.engine.session import Session
from regtta.errors import MissingFileError, OptionError, StatisticsError
from regtta.execution import PLAIN

BATCHES = small_models.table(64 * 16, shift=1.0, scale=1.5, seed=2).split(64)


@pytest.fixture(scope="module")
def model():
    return small_models.mlp()


@pytest.fixture(scope="module")
def source(model):
    return regtta.collect(model, small_models.table(400).split(50))


@pytest.fixture
def file(source, tmp_path):
    source.save(tmp_path / "source.safetensors")
    return tmp_path / "source.safetensors"


def assert_equal_streams(one, other, batches=BATCHES):
    """Assert that two adapters do the same with the same batches, to the last bit."""
    for x in batches:
        step, expected = one.adapt(x), other.adapt(x)
        assert (step.index, step.diagnostics) == (expected.index, expected.diagnostics)
        assert torch.equal(step.predictions, expected.predictions)
    assert torch.equal(one.predict(batches[0]), other.predict(batches[0]))


# --- methods by name -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "overrides", "method"),
    [
        ("ssa", {}, regtta.SSA()),
        ("ssa", {"k": 3, "lr": 0.01}, regtta.SSA(k=3, lr=0.01)),
        ("bn_adapt", {}, regtta.BNAdapt()),
    ],
)
def test_a_method_by_name_equals_the_object(model, source, name, overrides, method):
    by_name, by_object = regtta.Adapter(model, name, source, **overrides), regtta.Adapter(model, method, source)
    assert by_name.method == method
    assert_equal_streams(by_name, by_object)


def test_overrides_apply_to_objects_as_to_names(model, source):
    assert regtta.Adapter(model, regtta.SSA(k=2), source, lr=0.5).method == regtta.SSA(k=2, lr=0.5)


def test_overrides_of_a_sum_by_name_reach_its_terms(source, model):
    by_name = regtta.Adapter(model, "ssa+0.5*feature_alignment", source, k=3, lr=0.01)
    terms = (regtta.SSA(k=3, lr=0.01), regtta.FeatureAlignment(k=3, lr=0.01))
    statistics = {"batch_norm": terms[0].batch_norm, "bn_momentum": terms[0].bn_momentum}
    by_object = regtta.methods.Sum(terms=terms, weights=(1.0, 0.5), lr=0.01, **statistics)
    assert by_name.method == by_object
    assert_equal_streams(by_name, regtta.Adapter(model, by_object, source))


@pytest.mark.parametrize(("wrong", "meant"), [("sas", "ssa"), ("bn-adapt", "bn_adapt")])
def test_an_unknown_name_is_an_error_with_a_suggestion(model, source, wrong, meant):
    with pytest.raises(OptionError) as caught:
        regtta.Adapter(model, wrong, source)
    assert repr(wrong) in str(caught.value)
    assert f"Did you mean {meant!r}?" in str(caught.value)


def test_an_unknown_override_is_an_error_with_a_suggestion(model, source):
    with pytest.raises(OptionError, match=r"Did you mean 'lr'\?"):
        regtta.Adapter(model, "ssa", source, lrr=0.1)
    with pytest.raises(OptionError, match="SSA has no option 'name'"):
        regtta.Adapter(model, "ssa", source, name="mine")


@pytest.mark.parametrize("wrong", [regtta.SSA, None, 3])
def test_methods_are_instances_or_names(model, source, wrong):
    with pytest.raises(OptionError, match="Expected a method such as regtta.SSA()"):
        regtta.Adapter(model, wrong, source)


# --- statistics by path --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_statistics_by_path_equal_the_loaded_object(model, source, file, kind):
    by_path = regtta.Adapter(model, "ssa", kind(file), k=4)
    loaded = regtta.SourceStatistics.load(file)
    assert torch.equal(by_path.source.mean, source.mean)
    assert torch.equal(by_path.source.variances, source.variances)
    assert by_path.source.fingerprint == source.fingerprint
    assert_equal_streams(by_path, regtta.Adapter(model, "ssa", loaded, k=4))


@pytest.mark.parametrize("kind", [str, Path])
def test_a_missing_file_is_named(model, tmp_path, kind):
    with pytest.raises(MissingFileError, match="gone.safetensors"):
        regtta.Adapter(model, "ssa", kind(tmp_path / "gone.safetensors"))


def test_statistics_of_another_model_are_refused_by_path_too(file):
    with pytest.raises(regtta.RegttaError, match="another model"):
        regtta.Adapter(small_models.mlp(seed=1), "ssa", file)


@pytest.mark.parametrize("wrong", [3, b"source.safetensors", {}])
def test_statistics_are_an_object_or_a_path(model, wrong):
    with pytest.raises(StatisticsError, match="Expected source to be SourceStatistics"):
        regtta.Adapter(model, "ssa", wrong)


# --- the model -----------------------------------------------------------------------------------


def test_the_model_of_an_adapter_is_its_adapted_copy(source, model):
    own = copy.deepcopy(model)
    before = small_models.model_snapshot(own)
    adapter = regtta.Adapter(own, "ssa", source, k=4, lr=0.05)
    assert adapter.model is not own
    list(adapter.run(BATCHES))
    small_models.assert_unchanged(before, own)
    with torch.no_grad():
        torch.testing.assert_close(adapter.model(BATCHES[0]), adapter.predict(BATCHES[0]))
        assert not torch.allclose(adapter.model(BATCHES[0]), own(BATCHES[0]))
    shared = {p.data_ptr() for p in own.parameters()} & {p.data_ptr() for p in adapter.model.parameters()}
    assert not shared
    exported = adapter.export()
    assert exported is not adapter.model
    for name, value in adapter.model.state_dict().items():
        assert torch.equal(value, exported.state_dict()[name]), name


def test_the_model_cannot_be_replaced(model):
    with pytest.raises(AttributeError):
        regtta.Adapter(model, "bn_adapt").model = nn.Identity()


# --- devices -------------------------------------------------------------------------------------

STREAMS = {
    "ssa": ({"k": 4, "lr": 0.01}, {}),
    "momentum": ({"k": 4, "lr": 0.01, "optimizer": "adamw"}, {}),
    "window": ({"k": 4, "lr": 0.01, "window": 160}, {}),
    "debiased": ({"k": 4, "lr": 0.01, "batch_norm": "debiased"}, {}),
    "safe": ({"k": 4, "lr": 0.01}, {"guards": regtta.SAFE}),
    "safe window": ({"k": 4, "lr": 0.01, "window": 160}, {"guards": regtta.SAFE}),
}


def make(model, source, name):
    fields, options = STREAMS[name]
    return regtta.Adapter(model, regtta.SSA(**fields), source, **options)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("at", [0, 5, 12])
def test_an_adapter_that_moves_continues_exactly(model, source, name, at):
    moved, stayed = make(model, source, name), make(model, source, name)
    assert_equal_streams(moved, stayed, BATCHES[: at + 1])
    before = moved.state_dict()
    assert moved.to("cpu") is moved
    assert_same(moved.state_dict(), before)
    assert_equal_streams(moved, stayed, BATCHES[at + 1 :])
    for adapter in (moved, stayed):
        adapter.reset()  # the source model is remembered
    with torch.no_grad():
        assert torch.equal(moved.predict(BATCHES[0]), model(BATCHES[0]))
    assert_equal_streams(moved, stayed)
    assert moved.state_dict()["learned"] > 0


def test_moving_keeps_the_good_model_of_a_rollback(model, source):
    guards = (*regtta.guards.DEFAULT, regtta.guards.HealthCheck(every=3))
    moved, stayed = (regtta.Adapter(model, regtta.SSA(k=4), source, guards=guards) for _ in range(2))
    assert_equal_streams(moved, stayed)
    moved.to(torch.device("cpu"))
    assert moved.rollback() == stayed.rollback() == "good"
    assert torch.equal(moved.predict(BATCHES[0]), stayed.predict(BATCHES[0]))


def test_moving_keeps_the_summary_and_whether_it_is_frozen(model, source):
    adapter = regtta.Adapter(model, "ssa", source, k=100)
    list(adapter.run([BATCHES[0], BATCHES[1][:1]]))
    adapter.freeze()
    adapter.adapt(BATCHES[2])
    before = adapter.summary()
    assert "frozen by hand" in before
    assert "beyond the numerical rank" in before
    adapter.to("cpu")
    assert adapter.summary() == before
    assert adapter.adapt(BATCHES[3]).reason == "frozen by hand"


def test_moving_before_the_head_is_known():
    moved, stayed = (regtta.Adapter(small_models.mlp(3), "tent") for _ in range(2))
    assert moved.to("cpu").head is None
    assert_equal_streams(moved, stayed)
    assert moved.head == "6"


def test_callbacks_continue_after_a_move(model, source):
    views, monitors = (Views(), Views()), (regtta.Monitor(), regtta.Monitor())
    moved, stayed = (
        regtta.Adapter(model, "ssa", source, k=4, callbacks=pair) for pair in zip(views, monitors, strict=True)
    )
    assert_equal_streams(moved, stayed, BATCHES[:13])
    moved.to("cpu")
    assert_equal_streams(moved, stayed, BATCHES[13:])
    assert monitors[0].signals == monitors[1].signals
    for view, other in zip(views[0].views, views[1].views, strict=True):
        assert torch.equal(view.source.outputs, other.source.outputs)


WRONG = ["meta", "gpu", "cpu:x", 3.5, None, *([] if torch.cuda.is_available() else ["cuda", torch.device("cuda:1")])]


@pytest.mark.parametrize("name", ["ssa", "safe window"])
@pytest.mark.parametrize("device", WRONG, ids=str)
def test_a_device_that_cannot_be_used_leaves_the_adapter_as_it_was(model, source, device, name):
    adapter, other = make(model, source, name), make(model, source, name)
    assert_equal_streams(adapter, other, BATCHES[:13])
    before = adapter.state_dict()
    with pytest.raises(OptionError, match="Expected a device"):
        adapter.to(device)
    assert_same(adapter.state_dict(), before)
    assert_equal_streams(adapter, other, BATCHES[13:])


@pytest.mark.parametrize("name", ["ssa", "safe window"])
@pytest.mark.parametrize("when", ["model", "stream"])
def test_a_move_that_fails_halfway_leaves_the_adapter_as_it_was(model, source, name, when, monkeypatch):
    adapter, other = make(model, source, name), make(model, source, name)
    assert_equal_streams(adapter, other, BATCHES[:13])
    before, summary = adapter.state_dict(), adapter.summary()
    failures = iter([True])

    def fail_once(owner, attribute):
        original = getattr(owner, attribute)

        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if next(failures, False):
                raise torch.OutOfMemoryError("too large")
            return result

        monkeypatch.setattr(owner, attribute, call)

    fail_once(*((nn.Module, "to") if when == "model" else (Session, "start")))
    with pytest.raises(torch.OutOfMemoryError, match="too large"):
        adapter.to("cpu")
    assert next(failures, None) is None  # it did fail
    assert_same(adapter.state_dict(), before)
    assert adapter.summary() == summary
    assert_equal_streams(adapter, other, BATCHES[13:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("execution", [PLAIN, regtta.Execution(capture=True)], ids=["plain", "captured"])
@pytest.mark.parametrize("name", STREAMS)
def test_to_a_gpu_and_back(model, source, name, execution):
    fields, options = STREAMS[name]
    moved, stayed = (
        regtta.Adapter(model, regtta.SSA(**fields), source, execution=e, callbacks=[regtta.Monitor()], **options)
        for e in (execution, PLAIN)
    )
    for index, x in enumerate(BATCHES):
        if index in (3, 13):
            moved.to("cuda")
        elif index == 12:
            moved.to("cpu")
        step, expected = moved.adapt(x), stayed.adapt(x)
        assert step.predictions.device.type == ("cpu" if index in (0, 1, 2, 12) else "cuda")
        assert (step.adapted, step.reason) == (expected.adapted, expected.reason)
        torch.testing.assert_close(step.predictions.cpu(), expected.predictions, rtol=1e-3, atol=1e-4)


# --- several processes ---------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["no", 1, 0, None])
def test_whole_batches_is_true_or_false(model, source, wrong):
    with pytest.raises(OptionError, match=f"Expected whole_batches to be True or False, found {wrong!r}"):
        regtta.Adapter(model, "ssa", source, whole_batches=wrong)


def test_whole_batches_changes_nothing_in_one_process(model, source):
    assert_equal_streams(
        regtta.Adapter(model, "ssa", source, k=4, whole_batches=True), regtta.Adapter(model, "ssa", source, k=4)
    )
