import copy

import numpy as np
import pytest
import torch
from torch import nn

from regtta.models.batch_norm import BatchNormSwitch, debiased_momentum, has_constant_operations
from regtta.models.running_statistics import RunningStatistics


def layers_with(momenta, dtype=torch.float32):
    torch.manual_seed(0)
    layers = [nn.BatchNorm1d(3, momentum=momentum).to(dtype).eval() for momentum in momenta]
    for layer in layers:
        layer.running_mean.normal_(5.0)
        layer.running_var.uniform_(1.0, 2.0)
    return layers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_average_is_weighted_by_kind_of_layer(dtype):
    layers = layers_with([1.0, 1.0, 1.0], dtype)
    before = [[layer.running_mean.double().numpy(), layer.running_var.double().numpy()] for layer in layers]
    before = copy.deepcopy(before)
    statistics = RunningStatistics(layers, ["a", "b", "a"])
    batches = torch.randn(3, 20, 3, dtype=dtype) * 2 + 1
    statistics.fill({"a": 0.3, "b": 0.9})
    statistics.save()
    for layer, batch in zip(layers, batches, strict=True):
        layer.train()(batch)
    statistics.average()
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    for layer, (mean, variance), batch, weight in zip(
        layers, before, batches.double().numpy(), (0.3, 0.9, 0.3), strict=True
    ):
        wanted = weight * batch.mean(0) + (1 - weight) * mean
        np.testing.assert_allclose(layer.running_mean.double().numpy(), wanted, rtol=tolerance, atol=tolerance)
        wanted = weight * batch.var(0, ddof=1) + (1 - weight) * variance
        np.testing.assert_allclose(layer.running_var.double().numpy(), wanted, rtol=tolerance)


def test_a_weight_of_one_keeps_nothing_of_huge_previous_statistics():
    layer = nn.BatchNorm1d(1, momentum=1.0)
    layer.running_mean.fill_(1e9)
    statistics = RunningStatistics([layer], [None])
    statistics.fill({None: 1.0})
    statistics.save()
    layer(torch.tensor([[1.0], [2.0]]))
    statistics.average()
    assert layer.running_mean.item() == 1.5


class IgnoresMomentum(nn.BatchNorm1d):
    def forward(self, inputs):
        with torch.no_grad():
            self.running_mean.lerp_(inputs.mean(0), 0.5)
        return inputs - self.running_mean


@pytest.mark.parametrize(
    ("layer", "calls", "once"),
    [
        (nn.BatchNorm1d(2), 1, True),
        (nn.BatchNorm1d(2), 0, True),
        (nn.BatchNorm1d(2), 2, False),
        (nn.BatchNorm1d(2, track_running_stats=False), 2, True),
        (IgnoresMomentum(2), 1, False),
    ],
)
def test_layers_are_updated_once(layer, calls, once):
    statistics = RunningStatistics([layer], [0.1])
    statistics.save()
    statistics.count_updates()
    for _ in range(calls):
        layer(torch.randn(5, 2) + 3)
    assert statistics.are_updated_once() == once


def updated(mode, batches, momentum, *, constant_operations, begun=0):
    layers = layers_with([0.1, None, 0.3])
    switch = BatchNormSwitch(layers, mode, momentum=momentum, constant_operations=constant_operations)
    switch.load_state_dict({"updates": begun, "samples": begun * 7})
    for batch in batches:
        switch.set_weights(len(batch))
        switch.begin_adaptation(len(batch))
        for layer in layers:
            layer(batch)
        switch.end_adaptation()
        assert switch.finish_update() == constant_operations
        assert [layer.momentum for layer in layers] == [0.1, None, 0.3]
        assert not any(layer.training for layer in layers)
    return layers, switch


@pytest.mark.parametrize("begun", [0, 6])
@pytest.mark.parametrize("momentum", [None, 0.02])
@pytest.mark.parametrize("mode", ["debiased", "cumulative"])
def test_constant_operations_give_the_same_statistics(mode, momentum, begun):
    batches = [torch.randn(n, 3) * 2 + 1 for n in (8, 8, 5, 8, 12)]
    plain, one = updated(mode, batches, momentum, constant_operations=False, begun=begun)
    found, other = updated(mode, batches, momentum, constant_operations=True, begun=begun)
    assert one.state_dict() == other.state_dict()
    for expected, layer in zip(plain, found, strict=True):
        for key, value in expected.state_dict().items():
            torch.testing.assert_close(layer.state_dict()[key], value)


def test_the_given_momentum_replaces_that_of_the_layers():
    batches = [torch.randn(8, 3) for _ in range(4)]
    (layer, *_), _ = updated("debiased", batches, 0.02, constant_operations=True)
    weights = np.array([0.02 * 0.98 ** (3 - i) for i in range(4)])
    means = np.stack([batch.double().numpy().mean(0) for batch in batches])
    np.testing.assert_allclose(layer.running_mean.numpy(), weights @ means / weights.sum(), rtol=1e-5, atol=1e-6)
    assert debiased_momentum(0.02, 4) == pytest.approx(weights[-1] / weights.sum())


def test_batch_mode_with_a_momentum_includes_the_source():
    batches = [torch.randn(8, 3) for _ in range(3)]
    start = layers_with([0.1, None, 0.3])[0].running_mean.double().numpy()
    (layer, *_), _ = updated("batch", batches, 0.02, constant_operations=False)
    expected = start
    for batch in batches:
        expected = 0.98 * expected + 0.02 * batch.double().numpy().mean(0)
    np.testing.assert_allclose(layer.running_mean.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "layer_momentum", "momentum", "constant"),
    [
        ("batch", 0.1, None, True),
        ("batch", None, None, False),
        ("batch", None, 0.02, True),
        ("debiased", None, None, True),
        ("cumulative", 0.1, None, True),
        ("source", None, None, True),
        ("blended", 0.1, 0.02, False),
    ],
)
def test_modes_with_constant_operations(mode, layer_momentum, momentum, constant):
    assert has_constant_operations([nn.BatchNorm1d(2, momentum=layer_momentum)], mode, momentum) == constant
    assert has_constant_operations([], mode, momentum)
