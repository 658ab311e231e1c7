"""Alignment with a window: moments of the most recent samples, including previous batches."""

import pytest
import torch

import regtta
from helpers import small_models
from regtta.errors import OptionError

QUIET = {"batch_norm": "source", "k": 4}


def make(method, **options):
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, method, source, **options)


def shifted(batches, size, seed=2):
    return small_models.table(batches * size, shift=1.0, scale=1.5, seed=seed).split(size)


@pytest.mark.parametrize("metric", ["kl", "w2", "l1"])
@pytest.mark.parametrize("mode", ["batch", "blended", "source"])
def test_a_batch_as_long_as_the_window_is_aligned_as_without_a_window(metric, mode):
    options = {"k": 4, "metric": metric, "batch_norm": mode, "lr": 0.01}
    plain, windowed = make(regtta.SSA(**options)), make(regtta.SSA(window=16, **options))
    for x in [*shifted(4, 16), *shifted(2, 40, seed=5)]:
        a, b = plain.adapt(x), windowed.adapt(x)
        assert torch.equal(a.predictions, b.predictions)
        assert a.diagnostics == b.diagnostics


def test_loss_equals_that_of_the_most_recent_samples():
    """With a negligible learning rate, batches of 3 and a window of 12 have the loss of the last 12 samples."""
    windowed = make(regtta.SSA(window=12, lr=1e-12, **QUIET))
    inputs = small_models.table(60, shift=1.0)
    for end, x in zip(range(3, 61, 3), inputs.split(3), strict=True):
        found = windowed.adapt(x).diagnostics
        whole = make(regtta.SSA(lr=1e-12, **QUIET)).adapt(inputs[max(0, end - 12) : end])
        if end < 6:
            assert found.verdict.reason == "the window holds fewer than 6 samples"
        else:
            assert found.loss == pytest.approx(whole.diagnostics.loss, rel=1e-4)


def test_gradient_is_that_of_a_full_window():
    """A window filled with copies of a batch has the gradient of that batch."""
    x = small_models.table(4, shift=1.0)
    windowed = make(regtta.SSA(window=8, lr=1e-12, unbiased=False, **QUIET))
    windowed.adapt(x)
    again = windowed.adapt(x).diagnostics
    alone = make(regtta.SSA(lr=1e-12, unbiased=False, **QUIET)).adapt(x).diagnostics
    assert again.loss == pytest.approx(alone.loss, rel=1e-4)
    assert again.gradient_norm == pytest.approx(alone.gradient_norm, rel=1e-4)


def misalignment(adapter, inputs):
    """Return the loss of the paper on new samples, with the adapted model in eval mode."""
    subspace = adapter.source.top(4)
    y = small_models.numpy64((adapter.features(inputs).double() - subspace.mean) @ subspace.basis)
    m, s, lam = y.mean(0), y.var(0, ddof=1), small_models.numpy64(subspace.variances)
    return (((m**2 + lam) / s + (m**2 + s) / lam - 2) / 2).sum()


@pytest.mark.parametrize("mode", ["source", "blended"])
def test_batches_of_one_learn(mode):
    adapter = make(regtta.SSA(k=4, window=32, batch_norm=mode))
    fresh = shifted(1, 1000, seed=77)[0]
    before = misalignment(adapter, fresh)
    learned = [step.diagnostics.verdict.learned for step in adapter.run(shifted(500, 1))]
    assert learned == [False] * 15 + [True] * 485
    assert misalignment(adapter, fresh) < 0.1 * before


def test_batches_are_buffered_while_the_window_fills():
    adapter = make(regtta.SSA(k=4, window=32, batch_norm="blended"))
    for number, x in enumerate(shifted(7, 2), start=1):
        step = adapter.adapt(x)
        assert step.diagnostics.verdict == regtta.Verdict(False, "the window holds fewer than 16 samples")
        assert step.diagnostics.loss is None
        assert step.diagnostics.displacement == 0
        assert torch.equal(step.predictions, adapter.predict(x))  # by the blend, which has taken the batch in
        state = adapter.state_dict()["learner"]
        assert state["batch_norm"] == {"updates": number, "samples": 2 * number}
        assert state["rule"]["past"].shape == (2 * number, 4)
        assert not step.predictions.requires_grad
        assert not state["rule"]["past"].requires_grad


def test_the_window_contains_the_newest_samples_first():
    adapter = make(regtta.SSA(window=10, lr=1e-12, **QUIET))
    inputs = small_models.table(24, shift=1.0)
    for x in inputs.split(4):
        adapter.adapt(x)
    past = adapter.state_dict()["learner"]["rule"]["past"]
    batches = inputs.split(4)
    expected = torch.cat([batches[5], batches[4], batches[3][:2]])
    source = regtta.collect(small_models.mlp(), small_models.table(400).split(50))
    projected = (adapter.features(expected) - source.mean.float()) @ source.basis[:, :4].float()
    torch.testing.assert_close(past, projected, rtol=1e-4, atol=1e-5)


def test_a_resumed_stream_restores_its_window():
    method = regtta.SSA(k=4, window=24, batch_norm="blended", lr=0.01)
    whole, first, second = make(method), make(method), make(method)
    stream = shifted(16, 3)
    steps = list(whole.run(stream))
    list(first.run(stream[:6]))
    second.load_state_dict(first.state_dict())
    for step, x in zip(steps[6:], stream[6:], strict=True):
        again = second.adapt(x)
        assert torch.equal(again.predictions, step.predictions)
        assert again.diagnostics == step.diagnostics


def test_invalid_windows():
    for window in (-1, 2.5, True):
        with pytest.raises(OptionError, match="window to be a whole number of at least 0"):
            regtta.SSA(window=window)


@pytest.mark.filterwarnings("ignore:var:UserWarning")
def test_a_window_of_one_raises():
    with pytest.raises(OptionError, match="window to be 0 .* or at least 2, found 1"):
        regtta.SSA(window=1, **QUIET)
