import pytest
import torch
from torch import nn

import zoo
from regtta.errors import ModelError
from regtta.parameters import (
    BatchNormSwitch,
    Snapshot,
    batch_norms,
    debiased_momentum,
    freeze_all_but,
    trainable_parameters,
)


def test_affine_parameters_of_every_norm_layer_and_of_nothing_else():
    model = nn.ModuleDict(
        {
            "conv": nn.Conv2d(3, 4, 1),
            "bn1": nn.BatchNorm1d(4),
            "bn2": nn.BatchNorm2d(4),
            "bn3": nn.BatchNorm3d(4, affine=False),
            "sync": nn.SyncBatchNorm(4),
            "ln": nn.LayerNorm(4),
            "gn": nn.GroupNorm(2, 4),
            "instance": nn.InstanceNorm2d(4, affine=True),
            "rms": nn.RMSNorm(4),
            "head": nn.Linear(4, 1),
        }
    )
    names = {name.split(".")[0] for name in trainable_parameters(model, model["head"], "affine")}
    assert names == {"bn1", "bn2", "sync", "ln", "gn", "instance", "rms"}
    assert "head.weight" not in trainable_parameters(model, model["head"], "extractor")
    assert "conv.weight" in trainable_parameters(model, model["head"], "extractor")
    assert set(trainable_parameters(model, model["head"], "all")) == {n for n, _ in model.named_parameters()}
    assert trainable_parameters(model, model["head"], None) == {}
    assert "head.weight" in trainable_parameters(model, None, "extractor")


def test_a_model_with_nothing_to_move():
    plain = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(ModelError, match=r'Sequential has no normalisation layer.*trainable="extractor"'):
        trainable_parameters(plain, plain[2], "affine")
    head = nn.Linear(3, 1)
    with pytest.raises(ModelError, match="no parameters that may move"):
        trainable_parameters(nn.Sequential(head), head, "extractor")


def test_freezing():
    model = zoo.mlp()
    model(zoo.table(4)).sum().backward()
    freeze_all_but(model, [model[1].weight])
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["1.weight"]
    assert all(p.grad is None for p in model.parameters())


def running_after(mode, batches, momentum):
    layer = nn.BatchNorm1d(2, momentum=momentum)
    layer.running_mean.fill_(100.0)
    layer.eval()
    switch = BatchNormSwitch([layer], mode)
    for batch in batches:
        switch.adapting()
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


def test_a_snapshot_restores_bit_for_bit_and_follows_updates():
    tensors = [torch.randn(3), torch.randn(2, 2, requires_grad=True), torch.tensor(4)]
    first = [t.detach().clone() for t in tensors]
    snapshot = Snapshot(tensors)
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(3)
    snapshot.restore()
    assert all(torch.equal(a, b) for a, b in zip(tensors, first, strict=True))
    with torch.no_grad():
        tensors[0].fill_(7)
    snapshot.update()
    with torch.no_grad():
        tensors[0].fill_(8)
    snapshot.restore()
    assert (tensors[0] == 7).all()
    Snapshot([]).update()
