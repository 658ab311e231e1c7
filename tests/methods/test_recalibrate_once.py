import numpy as np
import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import ModelError, OptionError


def first_layer(samples):
    """Return a model whose BatchNorm sees the inputs themselves, and its adapter."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)).double().eval()
    return model, regtta.Adapter(model, regtta.RecalibrateOnce(samples=samples))


def running(adapter):
    layer = adapter.export()[0]
    return layer.running_mean.numpy(), layer.running_var.numpy()


def test_one_batch_gives_its_mean_and_variance():
    _, adapter = first_layer(40)
    x = small_models.table(40, shift=2.0, scale=3.0).double()
    assert adapter.adapt(x).adapted
    mean, variance = running(adapter)
    np.testing.assert_allclose(mean, x.numpy().mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, x.numpy().var(0, ddof=1), rtol=1e-12)


@pytest.mark.parametrize("sizes", [(20, 20, 20), (2, 31, 7, 20), (59, 2)])
def test_several_batches_give_the_mean_of_their_statistics_by_size(sizes):
    _, adapter = first_layer(sum(sizes))
    x = small_models.table(sum(sizes), shift=2.0, scale=3.0).double()
    batches = x.split(sizes)
    assert all(step.adapted for step in adapter.run(batches))
    mean, variance = running(adapter)
    np.testing.assert_allclose(mean, x.numpy().mean(0), rtol=1e-12)
    expected = np.average([b.numpy().var(0, ddof=1) for b in batches], axis=0, weights=sizes)
    np.testing.assert_allclose(variance, expected, rtol=1e-12)


def test_worked_example():
    # Batches (0, 2) and (4, 6, 8): means 1 and 6, variances 2 and 4; weighted by 2 and 3: 20/5 = 4 and 16/5 = 3.2.
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)).double().eval()
    adapter = regtta.Adapter(model, regtta.RecalibrateOnce(samples=5))
    for values in ([0.0, 2.0], [4.0, 6.0, 8.0]):
        adapter.adapt(torch.tensor(values).double().unsqueeze(1))
    assert running(adapter)[0].tolist() == pytest.approx([4.0])
    assert running(adapter)[1].tolist() == pytest.approx([3.2])


def test_after_the_first_samples_the_model_is_frozen():
    model, adapter = first_layer(50)
    stream = small_models.table(200, shift=1.0).double().split(20)
    steps = list(adapter.run(stream[:3]))
    frozen = adapter.export().state_dict()
    steps += adapter.run(stream[3:])
    assert [step.adapted for step in steps] == [True] * 3 + [False] * 7
    assert {step.reason for step in steps[3:]} == {"recalibrated on the first 60 samples and frozen since"}
    for name, value in adapter.export().state_dict().items():
        assert torch.equal(value, frozen[name]), name
    for step, x in zip(steps[3:], stream[3:], strict=True):
        assert torch.equal(step.predictions, adapter.predict(x))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), adapter.export().parameters(), strict=True))


def test_momentum_of_the_layers_does_not_matter():
    results = []
    for momentum in (0.01, 0.5, None):
        model = small_models.mlp()
        for layer in (model[1], model[4]):
            layer.momentum = momentum
        adapter = regtta.Adapter(model, regtta.RecalibrateOnce(samples=60))
        list(adapter.run(small_models.table(80, shift=1.0).split(20)))
        results.append(adapter.predict(small_models.table(10)))
        assert adapter.export()[1].momentum == momentum
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_resumed_stream_freezes_at_the_same_sample(tmp_path):
    _, whole = first_layer(70)
    _, resumed = first_layer(70)
    stream = small_models.table(120, shift=1.0).double().split(20)
    steps = list(whole.run(stream))
    list(resumed.run(stream[:2]))
    _, other = first_layer(70)
    other.load_state_dict(resumed.state_dict())
    again = list(other.run(stream[2:]))
    assert [step.adapted for step in again] == [step.adapted for step in steps[2:]] == [True, True, False, False]
    assert torch.equal(other.predict(stream[0]), whole.predict(stream[0]))


def test_models_without_running_statistics_and_invalid_options():
    with pytest.raises(ModelError, match="no BatchNorm layer with running statistics.*such as ssa"):
        regtta.Adapter(small_models.vit(), "recalibrate_once")
    with pytest.raises(OptionError, match="samples to be a whole number of at least 1"):
        regtta.RecalibrateOnce(samples=0)
