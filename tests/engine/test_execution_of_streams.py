"""Captured, compiled, reduced-precision and channels-last execution give the results of eager execution."""

import logging
import shutil

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.states import assert_same
from regtta.engine.forward import Shard
from regtta.execution.modes import FAST, Execution
from regtta.guards import DEFAULT, SAFE, Gate, Guard, Rollback
from regtta.models import batch_norm_layers

CAPTURED = Execution(capture=True)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")


def make_stream(device="cpu", model=None):
    model = (model or small_models.mlp()).to(device)
    methods = [regtta.FeatureRestoration(), regtta.ActMAD()]
    source = regtta.collect(model, small_models.table(200).to(device).split(40), methods=methods)
    return model, source, [x.to(device) for x in small_models.table(330, shift=0.7, scale=1.5, seed=3).split(24)]


def run_stream(adapter, stream):
    found = []
    for x in stream:
        step = adapter.adapt(x)
        info = step.diagnostics
        found.append((step.predictions.cpu(), info.loss, info.displacement, info.verdict.reason, info.verdict.returned))
    return found


def assert_same_stream(found, expected, tolerance=1e-4):
    for (predictions, *numbers), (wanted, *others) in zip(found, expected, strict=True):
        torch.testing.assert_close(predictions, wanted, rtol=tolerance, atol=tolerance)
        for got, want in zip(numbers, others, strict=True):
            assert got == (
                want if not isinstance(want, float) else pytest.approx(want, rel=20 * tolerance, abs=tolerance)
            )


def graph_count(adapter):
    """Return the number of batch shapes for which a CUDA graph was captured."""
    return 0 if adapter._session.stream.learner._graphed is None else adapter._session.stream.learner._graphed.graphs


class Pattern(Guard):
    """Rejects every third step and rolls back to the source at the tenth."""

    def __init__(self):
        object.__setattr__(self, "asked", 0)

    def after_step(self, outcome):
        object.__setattr__(self, "asked", self.asked + 1)
        if self.asked == 10:
            return Rollback("by the pattern", "source")
        return "by the pattern" if self.asked % 3 == 0 else None


METHODS = {
    "ssa": regtta.SSA(k=3, lr=1e-2),
    "ssa_sgd": regtta.SSA(k=3, lr=1e-3, optimizer="sgd"),
    "ssa_adamw": regtta.SSA(k=3, lr=1e-2, optimizer="adamw"),
    "ssa_rmsprop": regtta.SSA(k=3, lr=1e-3, optimizer="rmsprop"),
    "ssa_steps": regtta.SSA(k=3, lr=1e-2, steps=2),
    "ssa_w2": regtta.SSA(k=3, lr=1e-2, metric="w2"),
    "ssa_extractor": regtta.SSA(k=3, lr=1e-3, trainable="extractor", optimizer="sgd"),
    "feature_alignment": regtta.FeatureAlignment(k=3, lr=1e-2),
    "feature_restoration": regtta.FeatureRestoration(lr=1e-3),
    "bn_adapt": regtta.BNAdapt(),
    "ssa_paper": regtta.SSA.from_paper(k=3, lr=1e-2),
    "ssa_debiased": regtta.SSA(k=3, lr=1e-2, bn_momentum=None),
    "ssa_batch_momentum": regtta.SSA(k=3, lr=1e-2, batch_norm="batch", bn_momentum=0.3),
    "ssa_cumulative": regtta.SSA(k=3, lr=1e-2, batch_norm="cumulative"),
    "bn_adapt_debiased": regtta.BNAdapt(batch_norm="debiased"),
    "ssa_restore": regtta.SSA(k=3, lr=1e-2, restore=0.1),
    "cwsa": regtta.CWSA(k=3, lr=1e-2),
    "psc": regtta.PSC(k=3, lr=1e-2),
    "actmad": regtta.ActMAD(lr=1e-2),
}


@gpu
@pytest.mark.parametrize("name", METHODS)
def test_captured_steps_match_eager_steps(name):
    model, source, stream = make_stream("cuda")
    plain = run_stream(regtta.Adapter(model, METHODS[name], source), stream)
    captured = regtta.Adapter(model, METHODS[name], source, execution=CAPTURED)
    assert_same_stream(run_stream(captured, stream), plain)
    assert graph_count(captured) == 1


@gpu
@pytest.mark.parametrize("guards", [(*DEFAULT, Gate()), SAFE, "pattern"])
def test_guards_and_rollback_work_with_captured_steps(guards):
    model, source, stream = make_stream("cuda")
    stream = [
        *stream[:-1],
        *small_models.table(240, seed=9).cuda().split(24),
        *stream[:8],
    ]  # shifted, not shifted, shifted again
    adapters = [
        regtta.Adapter(
            model,
            regtta.SSA(k=3, lr=1e-2),
            source,
            guards=(*DEFAULT, Pattern()) if guards == "pattern" else guards,
            execution=execution,
        )
        for execution in (Execution(), CAPTURED)
    ]
    plain, captured = (run_stream(adapter, stream) for adapter in adapters)
    assert_same_stream(captured, plain)
    assert captured[-1][3] == plain[-1][3]
    if guards == "pattern":
        assert any(step[4] == "source" for step in captured)
        assert graph_count(adapters[1]) == 1  # captured again after the rollback


@gpu
def test_reset_load_and_predict_between_captured_steps():
    model, source, stream = make_stream("cuda")
    plain, captured = (
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
        for execution in (Execution(), CAPTURED)
    )
    for adapter in (plain, captured):
        run_stream(adapter, stream[:6])
    for x in (stream[7], stream[8], stream[9], stream[10], stream[11]):
        torch.testing.assert_close(captured.predict(x), plain.predict(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(captured.features(x), plain.features(x), rtol=1e-4, atol=1e-4)
    kept = captured.predict(stream[0]).clone(), captured.predict(stream[0])
    captured.predict(stream[1])
    assert torch.equal(*kept)  # a later prediction does not overwrite an earlier one
    states = plain.state_dict(), captured.state_dict()
    after = run_stream(captured, stream[6:])
    assert_same_stream(after, run_stream(plain, stream[6:]))
    for state in states:  # a state of either can be resumed by the other
        captured.load_state_dict(state)
        assert_same_stream(run_stream(captured, stream[6:]), after)
    captured.reset()
    plain.reset()
    assert_same_stream(run_stream(captured, stream), run_stream(plain, stream))
    assert graph_count(captured) == 1


class SynchronizingModel(nn.Module):
    """Synchronizes with the device in its forward pass, which cannot be captured."""

    def __init__(self):
        super().__init__()
        self.body = small_models.mlp()

    def forward(self, x):
        return self.body(x) if x.mean().item() < 1e9 else self.body(-x)


class CountingModel(nn.Module):
    """Depends on a Python counter, so that a replayed graph gives different results."""

    def __init__(self):
        super().__init__()
        self.body = small_models.mlp()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.body(torch.where(x > 0.1 * self.calls, x, -x))


@gpu
@pytest.mark.parametrize(
    ("model", "why"),
    [
        (SynchronizingModel, "A step cannot be captured"),
        (CountingModel, "A step returns different values when replayed"),
    ],
)
def test_models_that_cannot_be_captured_run_eagerly(model, why, caplog):
    net, source, stream = make_stream("cuda", model())
    expected = run_stream(regtta.Adapter(net, regtta.SSA(k=3), source, allow_mismatch=True), stream)
    with caplog.at_level(logging.WARNING, "regtta"):
        captured = regtta.Adapter(net, regtta.SSA(k=3), source, allow_mismatch=True, execution=CAPTURED)
        found = run_stream(captured, stream)
    assert why in caplog.text
    assert graph_count(captured) == 0
    if model is SynchronizingModel:  # CountingModel computes a different function at every call
        assert_same_stream(found, expected)


@gpu
def test_other_batch_shapes_are_logged_and_run_eagerly(caplog):
    model, source, stream = make_stream("cuda")
    mixed = [*stream[:6], stream[6][:10], *stream[7:10], stream[10][:10], stream[11]]
    expected = run_stream(regtta.Adapter(model, regtta.SSA(k=3), source), mixed)
    with caplog.at_level(logging.WARNING, "regtta"):
        found = run_stream(regtta.Adapter(model, regtta.SSA(k=3), source, execution=CAPTURED), mixed)
    assert_same_stream(found, expected)
    assert caplog.text.count("A step on a batch of shape (10, 5) runs without a graph") == 1


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (regtta.SSA(k=3, window=32), "those of ssa with these options are not all the same"),
        (regtta.SSA(k=3, optimizer=torch.optim.Adam), "the optimizer is user-defined"),
        (regtta.Prototype(), "those of prototype"),
    ],
)
@gpu
def test_methods_that_cannot_be_captured_log_a_warning(method, why, caplog):
    model, source, stream = make_stream("cuda")
    with caplog.at_level(logging.WARNING, "regtta"):
        found = run_stream(regtta.Adapter(model, method, source, head="6", execution=CAPTURED), stream)
    assert why in caplog.text
    assert_same_stream(found, run_stream(regtta.Adapter(model, method, source, head="6"), stream))


@pytest.mark.parametrize(("mode", "momentum"), [("blended", 0.1), ("batch", None)])
def test_batch_norm_modes_with_step_dependent_operations_are_neither_compiled_nor_captured(mode, momentum, caplog):
    model = small_models.mlp()
    for layer in batch_norm_layers(model):
        layer.momentum = momentum
    model, source, stream = make_stream(model=model)
    method = regtta.SSA.from_paper(k=3, lr=1e-2, batch_norm=mode)
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, method, source, execution=Execution(compile=True, capture=True))
    assert f"BatchNorm's statistics ({mode}) are weighted anew at every step" in caplog.text
    assert_same_stream(run_stream(adapter, stream), run_stream(regtta.Adapter(model, method, source), stream), 0)


def test_models_with_hooks_are_neither_captured_nor_compiled(caplog):
    model, source, stream = make_stream()
    calls = []
    model[2].register_forward_hook(lambda *_: calls.append(1))
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=Execution(compile=True, capture=True))
    assert "neither compiled nor captured: the model has hooks" in caplog.text
    run_stream(adapter, stream)
    assert len(calls) == len(stream)


def test_nothing_is_captured_on_a_cpu(caplog):
    model, source, stream = make_stream()
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=CAPTURED)
    assert "Steps are not captured: CUDA graphs require an NVIDIA GPU" in caplog.text
    assert_same_stream(
        run_stream(adapter, stream), run_stream(regtta.Adapter(model, regtta.SSA(k=3), source), stream), 0
    )


@compiler
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.filterwarnings("ignore")  # warnings of torch.compile and its dependencies
def test_a_compiled_stream_matches_the_eager_stream(device):
    model, source, stream = make_stream(device)
    compiled = regtta.Adapter(
        model, regtta.SSA(k=3, lr=1e-2), source, execution=Execution(compile=True, capture=device == "cuda")
    )
    expected = run_stream(regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source), stream)
    assert_same_stream(run_stream(compiled, stream), expected)
    assert compiled._session.stream.learner._forward.default._compiled is not None
    assert "forward" not in compiled.model[6].__dict__


def _with_bad_samples(stream):
    """Put one, two or three non-finite samples into every second batch."""
    faulted = [x.clone() for x in stream]
    for number, x in enumerate(faulted[1::2]):
        x[: 1 + number % 3, 2] = torch.nan
    return faulted


def test_batches_with_excluded_samples_are_not_compiled(monkeypatch):
    shapes = []

    def compiled(function, **_):
        def run(args, kwargs):
            shapes.append(len(args[0]))
            return function(args, kwargs)

        return run

    model, source, stream = make_stream()
    faulted = _with_bad_samples(stream[:-1])
    expected = run_stream(regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source), faulted)
    monkeypatch.setattr(torch, "compile", compiled)
    adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=Execution(compile=True))
    found = run_stream(adapter, faulted)
    for (predictions, *numbers), (wanted, *others) in zip(found, expected, strict=True):
        torch.testing.assert_close(predictions, wanted, equal_nan=True)
        assert numbers == others
    assert set(shapes) == {24}  # other sizes would be compiled again, at a minute each


def compile_nothing(monkeypatch):
    """Let torch.compile return the function itself, so that steps run as for a compiled model, but fast."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


WEIGHTED = {
    "default": {},
    "momentum of the layers": {"bn_momentum": None},
    "cumulative": {"batch_norm": "cumulative"},
    "several steps": {"steps": 2},
}


def different_momenta(model):
    for layer, momentum in zip(batch_norm_layers(model), (0.1, 0.4), strict=True):
        layer.momentum = momentum
    return model


@pytest.mark.parametrize("options", WEIGHTED.values(), ids=WEIGHTED)
def test_statistics_averaged_after_the_backward_pass_match_those_of_the_layers(options, monkeypatch):
    compile_nothing(monkeypatch)
    model, source, stream = make_stream(model=different_momenta(small_models.mlp()))
    method = regtta.SSA(k=3, lr=1e-2, **options)
    plain, averaged = (
        regtta.Adapter(model, method, source, guards=(*DEFAULT, Pattern()), execution=execution)
        for execution in (Execution(), Execution(compile=True))
    )
    assert_same_stream(run_stream(averaged, stream), run_stream(plain, stream), 1e-5)
    assert averaged._session.stream.learner.batch_norm.statistics is not None
    for key, value in plain.export().state_dict().items():
        torch.testing.assert_close(averaged.export().state_dict()[key], value, rtol=1e-5, atol=1e-6)


def test_a_state_of_either_way_to_update_statistics_is_resumed_by_the_other(monkeypatch):
    compile_nothing(monkeypatch)
    model, source, stream = make_stream()
    plain, averaged = (
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
        for execution in (Execution(), Execution(compile=True))
    )
    for adapter in (plain, averaged):
        run_stream(adapter, stream[:5])
    states = plain.state_dict(), averaged.state_dict()
    assert states[0]["learner"]["batch_norm"] == states[1]["learner"]["batch_norm"] == {"updates": 5, "samples": 0}
    after = run_stream(plain, stream[5:])
    new = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=Execution(compile=True))
    for adapter, state in [(averaged, states[0]), (plain, states[1]), (new, states[0])]:
        adapter.load_state_dict(state)
        assert_same_stream(run_stream(adapter, stream[5:]), after, 1e-5)


def test_a_rejected_step_restores_averaged_statistics_exactly(monkeypatch):
    compile_nothing(monkeypatch)
    model, source, stream = make_stream()
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=Execution(compile=True))
    run_stream(adapter, stream[:4])
    learner, before = adapter._session.stream.learner, adapter.state_dict()
    learner.step(Shard(stream[4], None, (24,)))
    assert not torch.equal(learner.state.tensors()["1.running_mean"], before["learner"]["tensors"]["1.running_mean"])
    learner.rollback()
    assert_same(adapter.state_dict(), before)


class CallsOneLayerTwice(nn.Module):
    """Normalises two layers by the same BatchNorm layer, which is updated twice in a pass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 8)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.norm(self.second(self.norm(self.first(x)).relu())).relu())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_models_that_call_a_layer_twice_are_neither_compiled_nor_captured(device, monkeypatch, caplog):
    calls = []

    def compiled(function, **_):
        return lambda args, kwargs: calls.append(1) or function(args, kwargs)

    monkeypatch.setattr(torch, "compile", compiled)
    model, source, stream = make_stream(device, CallsOneLayerTwice().eval())
    execution = Execution(compile=True, capture=device == "cuda")
    with caplog.at_level(logging.WARNING, "regtta"):
        found = run_stream(regtta.Adapter(model, regtta.SSA(k=3), source, execution=execution), stream)
    assert caplog.text.count("the model calls a BatchNorm layer several times") == 1
    assert_same_stream(found, run_stream(regtta.Adapter(model, regtta.SSA(k=3), source), stream), 1e-5)
    assert not calls


@gpu
def test_captured_streams_learn_from_the_remaining_samples_of_a_batch():
    model, source, stream = make_stream("cuda")
    faulted = _with_bad_samples([x for _ in range(3) for x in stream[:-1]])
    plain, captured = (
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
        for execution in (Execution(), CAPTURED)
    )
    assert_same_stream(
        [(p.nan_to_num(), *rest) for p, *rest in run_stream(captured, faulted)],
        [(p.nan_to_num(), *rest) for p, *rest in run_stream(plain, faulted)],
    )
    assert graph_count(captured) == 1


def test_models_that_cannot_be_compiled_run_eagerly(caplog, monkeypatch):
    def broken(args, kwargs):
        raise RuntimeError("no compiler\nand more")

    monkeypatch.setattr(torch, "compile", lambda function, **_: broken)
    model, source, stream = make_stream()
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=Execution(compile=True))
        found = run_stream(adapter, stream)
    assert caplog.text.count("The model is not compiled (RuntimeError: no compiler)") == 1
    assert_same_stream(found, run_stream(regtta.Adapter(model, regtta.SSA(k=3), source), stream), 0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_reduced_precision_is_close_and_keeps_the_dtype_of_predictions(device, precision):
    model = small_models.cnn().to(device)
    source = regtta.collect(model, small_models.images(200).to(device).split(40))
    stream = [x.to(device) for x in small_models.images(160, shift=0.2, scale=1.3, seed=3).split(32)]
    execution = Execution(precision=precision, channels_last=True)
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=execution)
    plain = regtta.Adapter(model, regtta.SSA(k=3), source)
    for x in stream:
        found, expected = adapter.adapt(x), plain.adapt(x)
        assert found.predictions.dtype == torch.float32
        assert adapter.predict(x).dtype == torch.float32
        torch.testing.assert_close(found.predictions, expected.predictions, rtol=5e-2, atol=5e-2)
    exported = adapter.export()
    assert exported[0].weight.is_contiguous()
    assert exported[0].weight.dtype == torch.float32


def test_the_head_keeps_full_precision_under_bfloat16():
    """Predictions are not rounded to bfloat16."""
    model = small_models.cnn()
    with torch.no_grad():
        model[9].bias.fill_(1000.0)
    adapter = regtta.Adapter(model, regtta.NoAdaptation(), head="9", execution=Execution(precision="bfloat16"))
    predictions = adapter.adapt(small_models.images(32)).predictions
    assert not torch.equal(predictions, predictions.bfloat16().float())
    with torch.no_grad():
        torch.testing.assert_close(predictions, model(small_models.images(32)), rtol=1e-4, atol=1e-2)


@gpu
@pytest.mark.filterwarnings("ignore")
def test_all_fast_options_together_stay_close_to_the_plain_stream():
    model = small_models.cnn().cuda()
    source = regtta.collect(model, small_models.images(200).cuda().split(40))
    stream = [x.cuda() for x in small_models.images(320, shift=0.2, scale=1.3, seed=3).split(32)]
    fast = regtta.Adapter(model, regtta.SSA(k=3), source, execution=FAST)
    plain = regtta.Adapter(model, regtta.SSA(k=3), source)
    for x in stream:
        torch.testing.assert_close(fast.adapt(x).predictions, plain.adapt(x).predictions, rtol=5e-2, atol=5e-2)
    assert graph_count(fast) == 1
