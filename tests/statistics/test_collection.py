import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import HeadError, ModelError, StatisticsError


def reference(model, inputs, split):
    """Compute features with the first layers of a sequential model, and their moments with numpy in float64."""
    with torch.no_grad():
        features = small_models.numpy64(model[:split](inputs))
    return features.mean(0), np.cov(features.T), features


def test_statistics_of_an_mlp_against_numpy():
    model, inputs = small_models.mlp(), small_models.table(500)
    source = regtta.collect(model, inputs.split(64))
    mean, covariance, _ = reference(model, inputs, 6)
    assert (source.count, source.head) == (500, "6")
    np.testing.assert_allclose(source.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(source.covariance(), covariance, rtol=1e-6, atol=1e-9)
    assert source.fingerprint == regtta.fingerprint(model)


def test_dropout_and_batch_norm_run_in_eval_mode_for_a_model_in_either_mode():
    model, inputs = small_models.cnn(), small_models.images(40)
    quiet = regtta.collect(model, inputs.split(7))
    model.train()
    before = small_models.model_snapshot(model)
    loud = regtta.collect(model, inputs.split(7))
    small_models.assert_unchanged(before, model)
    assert torch.equal(quiet.mean, loud.mean)
    assert torch.equal(quiet.variances, loud.variances)


def test_hooks_of_the_user_are_not_removed():
    model, seen = small_models.mlp(), []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    before = small_models.model_snapshot(model)
    regtta.collect(model, small_models.table(20).split(10))
    small_models.assert_unchanged(before, model)


@pytest.mark.parametrize(
    ("wrap", "key"),
    [
        (lambda x: x, None),
        (lambda x: (x, torch.ones(len(x))), None),
        (lambda x: [x, torch.ones(len(x))], None),
        (lambda x: {"image": x, "age": torch.ones(len(x))}, "image"),
    ],
)
def test_statistics_do_not_depend_on_the_kind_of_batch(wrap, key):
    model, inputs = small_models.mlp(), small_models.table(60)
    plain = regtta.collect(model, inputs.split(20))
    wrapped = regtta.collect(model, (wrap(x) for x in inputs.split(20)), inputs=key)
    assert torch.equal(plain.variances, wrapped.variances)


def test_statistics_do_not_depend_on_the_batch_size():
    model, inputs = small_models.mlp(), small_models.table(97)
    whole = regtta.collect(model, [inputs])
    parts = regtta.collect(model, inputs.split(1))
    torch.testing.assert_close(parts.variances, whole.variances, rtol=1e-5, atol=1e-9)


def test_a_named_head():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(50).split(10), head="3")
    assert source.head == "3"
    mean, _, _ = reference(model, small_models.table(50), 3)
    np.testing.assert_allclose(source.mean, mean, rtol=1e-6, atol=1e-9)
    with pytest.raises(HeadError, match="Expected nn.Linear at '4'"):
        regtta.collect(model, small_models.table(50).split(10), head="4")


def test_progress_counts_samples():
    seen = []
    regtta.collect(small_models.mlp(), small_models.table(25).split(10), progress=seen.append)
    assert seen == [10, 20, 25]


def test_device_is_that_of_the_argument(monkeypatch):
    moved = []
    monkeypatch.setattr(nn.Module, "to", lambda self, device: moved.append(device) or self)
    regtta.collect(small_models.mlp(), small_models.table(20).split(10), device="cpu")
    assert moved == [torch.device("cpu")]


def test_empty_batches_are_skipped():
    inputs = small_models.table(20)
    source = regtta.collect(small_models.mlp(), [inputs[:0], inputs, inputs[:0]])
    assert source.count == 20


def test_invalid_source_data_raises():
    model, inputs = small_models.mlp(), small_models.table(20)
    with pytest.raises(StatisticsError, match="gave no samples"):
        regtta.collect(model, iter([]))
    with pytest.raises(StatisticsError, match="at least 2 source samples"):
        regtta.collect(model, [inputs[:1]])
    inputs[13] = torch.inf
    with pytest.raises(StatisticsError, match="non-finite features on source batch 2"):
        regtta.collect(model, inputs.split(5))


@pytest.mark.parametrize("bad", [[0], [31], [32], [50, 40], [69]])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_the_first_non_finite_batch_is_named(bad, value):
    inputs = [small_models.table(0), *small_models.table(70).clone().split(1)]  # empty batches are counted as well
    model = nn.Sequential(nn.Linear(5, 1))
    for batch in bad:
        inputs[batch + 1][0, 3] = value
    with pytest.raises(StatisticsError, match=f"non-finite features on source batch {min(bad) + 1}\\."):
        regtta.collect(model, inputs)


def test_a_later_pass_must_be_finite_too():
    class Spoilt(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            yield from (x if self.passes == 1 else x * torch.nan for x in super().__iter__())

    with pytest.raises(StatisticsError, match="non-finite features on source batch 0"):
        regtta.collect(
            small_models.mlp(), Spoilt(small_models.table(20).split(10)), methods=[regtta.FeatureRestoration()]
        )


def test_large_finite_values_are_accepted():
    model = nn.Sequential(nn.Linear(2, 1))
    inputs = torch.full((8, 2), torch.finfo(torch.float32).max)
    inputs[0] = 0
    assert regtta.collect(model, inputs.split(2)).count == 8


def test_a_loader_that_writes_into_one_buffer():
    model, inputs, buffer = small_models.mlp(), small_models.table(40), torch.empty(10, 5)
    written = regtta.collect(model, (buffer.copy_(x) for x in inputs.split(10)))
    assert torch.equal(written.variances, regtta.collect(model, inputs.split(10)).variances)


def test_invalid_models_raise():
    with pytest.raises(ModelError, match=r"Expected a torch.nn.Module, found function"):
        regtta.collect(lambda x: x, [small_models.table(4)])
    model = small_models.mlp()
    model.lock = (item for item in ())
    with pytest.raises(ModelError, match=r"cannot be copied \(TypeError: .*generator"):
        regtta.collect(model, [small_models.table(4)])
