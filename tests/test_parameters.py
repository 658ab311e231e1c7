import pytest
import torch
from torch import nn

import zoo
from regtta.errors import ModelError
from regtta.parameters import (
    Snapshot,
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
