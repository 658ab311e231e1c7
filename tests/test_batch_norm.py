import pytest
import torch
from torch import nn

import zoo
from regtta.batch_norm import BatchNormSwitch, batch_norms, debiased_momentum


def running_after(mode, batches, momentum):
    layer = nn.BatchNorm1d(2, momentum=momentum)
    layer.running_mean.fill_(100.0)
    layer.eval()
    switch = BatchNormSwitch([layer], mode)
    for batch in batches:
        switch.adapting(len(batch))
        layer(batch)
        switch.predicting()
        assert not layer.training
        assert layer.momentum == momentum
    return layer.running_mean, switch.updates


def test_batch_mode_is_the_exponential_average_with_its_leftover():
    batches = torch.randn(5, 8, 2).unbind()
    got, updates = running_after("batch", batches, 0.1)
    expected = torch.full((2,), 100.0)
    for batch in batches:
        expected = 0.9 * expected + 0.1 * batch.mean(0)
    torch.testing.assert_close(got, expected)
    assert updates == 5


def test_debiased_mode_forgets_the_source_and_weighs_batches_alike_exponentially():
    batches = torch.randn(5, 8, 2).unbind()
    got, _ = running_after("debiased", batches, 0.1)
    weights = torch.tensor([0.1 * 0.9 ** (4 - i) for i in range(5)])
    expected = sum(w * b.mean(0) for w, b in zip(weights, batches, strict=True)) / weights.sum()
    torch.testing.assert_close(got, expected)


def test_debiased_mode_without_a_momentum_is_the_plain_mean():
    batches = torch.randn(5, 8, 2).unbind()
    got, _ = running_after("debiased", batches, None)
    torch.testing.assert_close(got, torch.stack(batches).mean((0, 1)))


def test_source_mode_changes_nothing():
    got, updates = running_after("source", torch.randn(3, 8, 2).unbind(), 0.1)
    assert (got == 100).all()
    assert updates == 0


def test_debiased_momentum_tends_to_the_layers_own():
    assert debiased_momentum(0.3, 1) == pytest.approx(1.0)
    assert debiased_momentum(0.3, 200) == pytest.approx(0.3)
    assert debiased_momentum(None, 4) == 0.25
    assert debiased_momentum(1.0, 3) == 1.0


def test_batch_norms_in_order():
    model = zoo.cnn()
    assert batch_norms(model) == [model[1], model[4]]
    assert batch_norms(zoo.vit()) == []
