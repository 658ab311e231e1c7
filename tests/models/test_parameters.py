import pytest
import timm.layers
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.engine.rollback import Snapshot
from regtta.errors import ModelError
from regtta.models.parameters import (
    freeze_all_but,
    trainable_parameters,
)


def test_affine_parameters_are_those_of_norm_layers_only():
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


def layer(name, bases=(nn.Module,), child=None, **shapes):
    """Return a module of class ``name`` with parameters of these shapes."""
    module = type(name, bases, {})()
    for key, shape in shapes.items():
        module.register_parameter(key, nn.Parameter(torch.ones(shape)))
    if child is not None:
        module.inner = child
    return module


def affine_names(module):
    model = nn.ModuleDict({"layer": module, "ln": nn.LayerNorm(4)})
    found = set(trainable_parameters(model, None, "affine"))
    assert {"ln.weight", "ln.bias"} <= found
    return {name.removeprefix("layer.") for name in found if name.startswith("layer.")}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RmsNorm", {"weight"}),
        ("RmsNorm2d", {"weight"}),
        ("RmsNormAct2d", {"weight"}),
        ("RmsNormFp32", {"weight"}),
        ("SimpleNorm", {"weight"}),
        ("SimpleNorm2d", {"weight"}),
        ("LayerNorm2d", {"weight", "bias"}),
        ("LayerNormAct2d", {"weight", "bias"}),
        ("GroupNorm1", {"weight", "bias"}),
        ("BatchNormAct2d", {"weight", "bias"}),
        ("EvoNorm2dB0", {"weight", "bias"}),
        ("EvoNorm2dS0", {"weight", "bias"}),
        ("FilterResponseNormTlu2d", {"weight", "bias"}),
        ("FilterResponseNormAct2d", {"weight", "bias"}),
        ("GlobalResponseNorm", {"weight", "bias"}),
        ("FrozenBatchNormAct2d", set()),
    ],
)
def test_affine_parameters_of_timms_norm_layers(name, expected):
    cls = getattr(timm.layers, name, None) or getattr(timm.layers.grn, name)
    assert affine_names(cls(32)) == expected


@pytest.mark.parametrize(
    "name", ["ConvNormAct", "SeparableConvNormAct", "NormMlpClassifierHead", "GlobalResponseNormMlp"]
)
def test_blocks_named_after_a_norm_contribute_only_their_norm_layers(name):
    module = getattr(timm.layers, name)(32, 32)
    norms = {
        n
        for n, m in module.named_modules()
        if type(m).__name__ in ("BatchNormAct2d", "LayerNorm2d", "GlobalResponseNorm")
    }
    assert norms
    assert affine_names(module) == {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (layer("T5LayerNorm", weight=8), {"weight"}),
        (layer("LlamaRMSNorm", weight=8), {"weight"}),
        (layer("LayerNormalization", gamma=8, beta=8), {"gamma", "beta"}),
        (layer("ChannelNorm", scale=(8, 1, 1), bias=(8, 1, 1)), {"scale", "bias"}),
        (layer("ChannelRMSNorm", gamma=(1, 8, 1, 1)), {"gamma"}),
        (layer("ScaleNorm", g=()), {"g"}),
        (layer("RMSNormWithThreshold", weight=8, threshold=8), {"weight"}),
        (layer("Renamed", bases=(type("MyRMSNorm", (nn.Module,), {}),), weight=8), {"weight"}),
        (layer("EvoNormWithAct", weight=8, child=nn.ReLU()), {"weight"}),
        (layer("NormalizedLinear", weight=(1, 8), bias=1), set()),
        (layer("NormalizedScale", weight=8), set()),
        (layer("NormLinear", weight=(8, 8), bias=8), set()),
        (layer("NormLinearToOne", weight=(1, 8)), set()),
        (layer("NormConv", weight=(8, 8, 1, 1), bias=8), set()),
        (layer("LayerNormLSTM", weight=(32, 8), bias=32), set()),
        (layer("PreNormBlock", gamma=8, child=nn.Linear(8, 8)), set()),
        (layer("BatchNorm2dAndPReLU", weight=8, child=nn.PReLU(8)), set()),
        (layer("LayerScale", gamma=8), set()),
        (type("NormHead", (nn.Linear,), {})(8, 1), set()),
        (type("NormConv1x1", (nn.Conv2d,), {})(8, 1, 1), set()),
        (type("NormEmbedding", (nn.Embedding,), {})(8, 1), set()),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), set()),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), set()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_norm_layers_are_recognised_by_class_name_and_parameters(module, expected):
    assert affine_names(module) == expected


def test_a_timm_model_with_rms_norms_adapts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), timm.layers.RmsNorm(8), nn.GELU(), nn.Linear(8, 1)).eval()
    source = regtta.collect(model, small_models.table(400).split(50))
    adapter = regtta.Adapter(model, regtta.SSA(k=2), source)
    assert adapter.adapt(small_models.table(32, shift=1.0)).diagnostics.verdict.learned
    adapted = dict(adapter.export().named_parameters())
    assert [name for name, p in model.named_parameters() if not torch.equal(p, adapted[name])] == ["1.weight"]


def names(model, head, which):
    return set(trainable_parameters(model, head, which))


def test_biases_are_those_of_all_modules_except_the_head():
    model = nn.ModuleDict(
        {
            "conv": nn.Conv2d(3, 4, 1),
            "without": nn.Linear(4, 4, bias=False),
            "bn": nn.BatchNorm1d(4),
            "rnn": nn.LSTM(4, 4, num_layers=2, bidirectional=True),
            "cell": nn.GRUCell(4, 4),
            "attention": nn.MultiheadAttention(4, 2),
            "head": nn.Linear(4, 1),
        }
    )
    model["table"] = layer("SwinAttention", relative_position_bias_table=(9, 2), q_bias=4, bias_scale=4)
    recurrent = {f"rnn.bias_{a}_l{n}{back}" for a in ("ih", "hh") for n in (0, 1) for back in ("", "_reverse")}
    others = {"conv.bias", "bn.bias", "cell.bias_ih", "cell.bias_hh", "table.q_bias"}
    attention = {"attention.in_proj_bias", "attention.out_proj.bias"}
    assert names(model, model["head"], "bias") == recurrent | others | attention
    assert "head.bias" in names(model, None, "bias")


@pytest.mark.parametrize(
    "extractor",
    [nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False)), nn.GRU(2, 3)],
    ids=["linear", "norm without parameters", "gru"],
)
def test_affine_falls_back_to_the_biases_without_norm_layers_and_warns_once(extractor, caplog):
    model = nn.Sequential(extractor, nn.Linear(3, 1))
    found = names(model, model[1], "affine")
    assert found == names(model, model[1], "bias")
    assert "1.bias" not in found
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    text = warning.getMessage()
    assert 'Sequential has no normalisation layer with affine parameters, which trainable="affine" updates' in text
    assert 'trainable="bias"' in text
    assert 'trainable="extractor"' in text


def test_a_norm_layer_prevents_the_fallback(caplog):
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    assert names(model, model[2], "affine") == {"1.weight", "1.bias"}
    assert not caplog.records


def test_a_model_without_trainable_parameters_raises():
    plain = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(
        ModelError, match=r'Sequential.*neither a normalisation layer.*nor a bias.*trainable="extractor"'
    ):
        trainable_parameters(plain, plain[2], "affine")
    with pytest.raises(ModelError, match=r'trainable="bias" updates, found no bias.*trainable="extractor"'):
        trainable_parameters(plain, plain[2], "bias")
    assert names(plain, plain[2], "extractor") == {"0.weight"}
    head = nn.Linear(3, 1)
    with pytest.raises(ModelError, match="no trainable parameters"):
        trainable_parameters(nn.Sequential(head), head, "extractor")


def test_freezing():
    model = small_models.mlp()
    model(small_models.table(4)).sum().backward()
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
