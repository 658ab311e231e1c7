"""However a stream is carried out, it is the same stream: captured, compiled, in other precisions and layouts."""

import logging
import shutil

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.execution.modes import FAST, Execution
from regtta.guards import DEFAULT, SAFE, Gate, Guard, Rollback

CAPTURED = Execution(capture=True)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")


def scene(device="cpu", model=None):
    model = (model or small_models.mlp()).to(device)
    source = regtta.collect(
        model, small_models.table(200).to(device).split(40), methods=[regtta.create_method("feature_restoration")]
    )
    return model, source, [x.to(device) for x in small_models.table(330, shift=0.7, scale=1.5, seed=3).split(24)]


def followed(adapter, stream):
    found = []
    for x in stream:
        step = adapter.adapt(x)
        told = step.diagnostics
        found.append((step.predictions.cpu(), told.loss, told.displacement, told.verdict.reason, told.verdict.returned))
    return found


def assert_same_stream(found, expected, tolerance=1e-4):
    for (predictions, *numbers), (wanted, *others) in zip(found, expected, strict=True):
        torch.testing.assert_close(predictions, wanted, rtol=tolerance, atol=tolerance)
        for got, want in zip(numbers, others, strict=True):
            assert got == (
                want if not isinstance(want, float) else pytest.approx(want, rel=20 * tolerance, abs=tolerance)
            )


def replays(adapter):
    """How many shapes of batches the adapter's steps are replayed for."""
    return 0 if adapter._session.stream.learner._graphed is None else adapter._session.stream.learner._graphed.graphs


class Pattern(Guard):
    """Refuses every third step it is asked about, and has all taken back at the tenth."""

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
}


@gpu
@pytest.mark.parametrize("name", METHODS)
def test_a_captured_step_is_the_eager_one(name):
    model, source, stream = scene("cuda")
    plain = followed(regtta.Adapter(model, METHODS[name], source), stream)
    captured = regtta.Adapter(model, METHODS[name], source, execution=CAPTURED)
    assert_same_stream(followed(captured, stream), plain)
    assert replays(captured) == 1


@gpu
@pytest.mark.parametrize("guards", [(*DEFAULT, Gate()), SAFE, "pattern"])
def test_guards_gate_and_rollback_rule_over_captured_steps(guards):
    model, source, stream = scene("cuda")
    stream = [
        *stream[:-1],
        *small_models.table(240, seed=9).cuda().split(24),
        *stream[:8],
    ]  # a shift, none, a shift again
    made = [
        regtta.Adapter(
            model,
            regtta.SSA(k=3, lr=1e-2),
            source,
            guards=(*DEFAULT, Pattern()) if guards == "pattern" else guards,
            execution=execution,
        )
        for execution in (Execution(), CAPTURED)
    ]
    plain, captured = (followed(adapter, stream) for adapter in made)
    assert_same_stream(captured, plain)
    assert captured[-1][3] == plain[-1][3]
    if guards == "pattern":
        assert any(told[4] == "source" for told in captured)
        assert replays(made[1]) == 1  # made anew after the return


@gpu
def test_resetting_loading_and_predicting_between_captured_steps():
    model, source, stream = scene("cuda")
    plain, captured = (
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
        for execution in (Execution(), CAPTURED)
    )
    for adapter in (plain, captured):
        followed(adapter, stream[:6])
    for x in (stream[7], stream[8], stream[9], stream[10], stream[11]):
        torch.testing.assert_close(captured.predict(x), plain.predict(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(captured.features(x), plain.features(x), rtol=1e-4, atol=1e-4)
    kept = captured.predict(stream[0]).clone(), captured.predict(stream[0])
    captured.predict(stream[1])
    assert torch.equal(*kept)  # a later prediction leaves an earlier one alone
    states = plain.state_dict(), captured.state_dict()
    after = followed(captured, stream[6:])
    assert_same_stream(after, followed(plain, stream[6:]))
    for state in states:  # a state of either goes on in the other
        captured.load_state_dict(state)
        assert_same_stream(followed(captured, stream[6:]), after)
    captured.reset()
    plain.reset()
    assert_same_stream(followed(captured, stream), followed(plain, stream))
    assert replays(captured) == 1


class Reads(nn.Module):
    """Reads a number from the device in its forward pass, which no graph can hold."""

    def __init__(self):
        super().__init__()
        self.body = small_models.mlp()

    def forward(self, x):
        return self.body(x) if x.mean().item() < 1e9 else self.body(-x)


class Counts(nn.Module):
    """Does something else at every call, by a count in Python that no graph sees."""

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
    [(Reads, "A step cannot be captured"), (Counts, "A step returns different values when replayed")],
)
def test_models_that_cannot_be_replayed_are_run_as_before(model, why, caplog):
    net, source, stream = scene("cuda", model())
    expected = followed(regtta.Adapter(net, regtta.SSA(k=3), source, allow_mismatch=True), stream)
    with caplog.at_level(logging.WARNING, "regtta"):
        captured = regtta.Adapter(net, regtta.SSA(k=3), source, allow_mismatch=True, execution=CAPTURED)
        found = followed(captured, stream)
    assert why in caplog.text
    assert replays(captured) == 0
    if model is Reads:  # the other is a different model at every look
        assert_same_stream(found, expected)


@gpu
def test_other_shapes_of_batches_are_told_and_go_on(caplog):
    model, source, stream = scene("cuda")
    mixed = [*stream[:6], stream[6][:10], *stream[7:10], stream[10][:10], stream[11]]
    expected = followed(regtta.Adapter(model, regtta.SSA(k=3), source), mixed)
    with caplog.at_level(logging.WARNING, "regtta"):
        found = followed(regtta.Adapter(model, regtta.SSA(k=3), source, execution=CAPTURED), mixed)
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
def test_methods_that_cannot_be_replayed_say_so(method, why, caplog):
    model, source, stream = scene("cuda")
    with caplog.at_level(logging.WARNING, "regtta"):
        found = followed(regtta.Adapter(model, method, source, head="6", execution=CAPTURED), stream)
    assert why in caplog.text
    assert_same_stream(found, followed(regtta.Adapter(model, method, source, head="6"), stream))


@pytest.mark.parametrize("mode", ["debiased", "blended"])
def test_statistics_that_are_weighted_anew_are_neither_compiled_nor_captured(mode, caplog):
    model, source, stream = scene()
    method = regtta.SSA(k=3, lr=1e-2, batch_norm=mode)
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, method, source, execution=Execution(compile=True, capture=True))
    assert f"BatchNorm's statistics ({mode}) are weighted anew at every step" in caplog.text
    assert_same_stream(followed(adapter, stream), followed(regtta.Adapter(model, method, source), stream), 0)


def test_hooks_are_called_and_nothing_is_captured_or_compiled(caplog):
    model, source, stream = scene()
    calls = []
    model[2].register_forward_hook(lambda *_: calls.append(1))
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=Execution(compile=True, capture=True))
    assert "neither compiled nor captured: the model has hooks" in caplog.text
    followed(adapter, stream)
    assert len(calls) == len(stream)


def test_nothing_is_captured_on_a_cpu(caplog):
    model, source, stream = scene()
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=CAPTURED)
    assert "Steps are not captured: CUDA graphs require an NVIDIA GPU" in caplog.text
    assert_same_stream(followed(adapter, stream), followed(regtta.Adapter(model, regtta.SSA(k=3), source), stream), 0)


@compiler
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.filterwarnings("ignore")  # the compiler's own, of its many libraries
def test_a_compiled_stream_is_the_eager_one(device):
    model, source, stream = scene(device)
    compiled = regtta.Adapter(
        model, regtta.SSA(k=3, lr=1e-2), source, execution=Execution(compile=True, capture=device == "cuda")
    )
    expected = followed(regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source), stream)
    assert_same_stream(followed(compiled, stream), expected)
    assert compiled._session.stream.learner._forward.default._compiled is not None
    assert "forward" not in compiled.model[6].__dict__


def _with_bad_samples(stream):
    """Every second batch with one, two or three samples that are not finite."""
    struck = [x.clone() for x in stream]
    for number, x in enumerate(struck[1::2]):
        x[: 1 + number % 3, 2] = torch.nan
    return struck


def test_batches_that_samples_were_left_out_of_are_not_compiled(monkeypatch):
    shapes = []

    def compiled(function, **_):
        def run(inputs):
            shapes.append(len(inputs))
            return function(inputs)

        return run

    model, source, stream = scene()
    struck = _with_bad_samples(stream[:-1])
    expected = followed(regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source), struck)
    monkeypatch.setattr(torch, "compile", compiled)
    adapter = regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=Execution(compile=True))
    found = followed(adapter, struck)
    for (predictions, *numbers), (wanted, *others) in zip(found, expected, strict=True):
        torch.testing.assert_close(predictions, wanted, equal_nan=True)
        assert numbers == others
    assert set(shapes) == {24}  # a compiler takes a minute for each size


@gpu
def test_captured_streams_learn_from_what_is_left_of_a_batch():
    model, source, stream = scene("cuda")
    struck = _with_bad_samples([x for _ in range(3) for x in stream[:-1]])
    plain, captured = (
        regtta.Adapter(model, regtta.SSA(k=3, lr=1e-2), source, execution=execution)
        for execution in (Execution(), CAPTURED)
    )
    assert_same_stream(
        [(p.nan_to_num(), *rest) for p, *rest in followed(captured, struck)],
        [(p.nan_to_num(), *rest) for p, *rest in followed(plain, struck)],
    )
    assert replays(captured) == 1


def test_what_cannot_be_compiled_is_run_as_before(caplog, monkeypatch):
    def broken(inputs):
        raise RuntimeError("no compiler\nand more")

    monkeypatch.setattr(torch, "compile", lambda function, **_: broken)
    model, source, stream = scene()
    with caplog.at_level(logging.WARNING, "regtta"):
        adapter = regtta.Adapter(model, regtta.SSA(k=3), source, execution=Execution(compile=True))
        found = followed(adapter, stream)
    assert caplog.text.count("The model is not compiled (RuntimeError: no compiler)") == 1
    assert_same_stream(found, followed(regtta.Adapter(model, regtta.SSA(k=3), source), stream), 0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_other_precisions_stay_near_and_answer_in_the_models_own(device, precision):
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


def test_the_head_keeps_its_digits_under_bfloat16():
    """A prediction that went through bfloat16 would be one of few values."""
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
def test_everything_at_once_stays_near_the_plain_stream():
    model = small_models.cnn().cuda()
    source = regtta.collect(model, small_models.images(200).cuda().split(40))
    stream = [x.cuda() for x in small_models.images(320, shift=0.2, scale=1.3, seed=3).split(32)]
    fast = regtta.Adapter(model, regtta.SSA(k=3), source, execution=FAST)
    plain = regtta.Adapter(model, regtta.SSA(k=3), source)
    for x in stream:
        torch.testing.assert_close(fast.adapt(x).predictions, plain.adapt(x).predictions, rtol=5e-2, atol=5e-2)
    assert replays(fast) == 1
