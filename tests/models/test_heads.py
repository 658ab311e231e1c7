import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import nn

from regtta.errors import HeadError, OptionError
from regtta.models.features import FeatureModel
from regtta.models.heads import (
    POOLINGS,
    Head,
    HeadLayout,
    affine_layer,
    affine_layers,
    affine_map,
    check_pooling,
    input_width,
    is_affine_layer,
    matching_positions,
    pool_positions,
    to_positions,
)

NAMES = st.text("abcxyz_0123456789.", max_size=8)


@given(
    groups=st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=3),
    pooling=st.sampled_from(["", *POOLINGS]),
    time_first=st.booleans(),
)
def test_a_layout_is_its_text(groups, pooling, time_first):
    layout = HeadLayout(tuple(map(tuple, groups)), pooling, time_first and bool(pooling))
    assert HeadLayout.parse(str(layout)) == layout
    assert str(HeadLayout.parse(str(layout))) == str(layout)
    assert layout.names == tuple(name for group in groups for name in group)


@pytest.mark.parametrize(
    ("text", "groups", "pooling", "time_first"),
    [
        ("fc", (("fc",),), "", False),
        ("", (("",),), "", False),
        ("mean&variance", (("mean", "variance"),), "", False),
        ("head+head_dist", (("head",), ("head_dist",)), "", False),
        ("a&b+c[mean]", (("a", "b"), ("c",)), "mean", False),
        ("head[all/time-first]", (("head",),), "all", True),
    ],
)
def test_texts_of_heads(text, groups, pooling, time_first):
    assert HeadLayout.parse(text) == HeadLayout(groups, pooling, time_first)


@pytest.mark.parametrize("text", ["fc[median]", "fc[x/time-first]", 3, None])
def test_an_unknown_pooling_lists_the_known_ones(text):
    with pytest.raises(HeadError, match="Expected a head such as 'fc' or 'score\\[last\\]'.*first, last, mean"):
        HeadLayout.parse(text)


def lora(layer):
    return get_peft_model(nn.Sequential(layer), LoraConfig(r=2, target_modules=["0"], init_lora_weights=False)).eval()


def closed_form(weight, bias):
    return weight.detach().double(), bias.detach().double()


AFFINE = {
    "linear": lambda: (layer := nn.Linear(5, 3), *closed_form(layer.weight, layer.bias)),
    "without bias": lambda: (layer := nn.Linear(5, 3, bias=False), *closed_form(layer.weight, torch.zeros(3))),
    "Conv1d": lambda: (layer := nn.Conv1d(5, 3, 1), *closed_form(layer.weight[:, :, 0], layer.bias)),
    "Conv2d": lambda: (layer := nn.Conv2d(5, 3, 1), *closed_form(layer.weight[:, :, 0, 0], layer.bias)),
    "Conv3d": lambda: (layer := nn.Conv3d(5, 3, 1), *closed_form(layer.weight[:, :, 0, 0, 0], layer.bias)),
    "weight norm": lambda: (
        layer := nn.utils.parametrizations.weight_norm(nn.Linear(5, 3).double()),
        *closed_form(layer.weight, layer.bias),
    ),
}


@pytest.mark.parametrize("kind", AFFINE)
def test_the_affine_map_of_a_layer_is_its_weight_and_bias(kind):
    torch.manual_seed(0)
    layer, weight, bias = AFFINE[kind]()
    assert is_affine_layer(layer)
    assert input_width(layer) == 5
    found = affine_map(layer.double())
    torch.testing.assert_close(found[0].double(), weight, rtol=1e-12, atol=0)
    torch.testing.assert_close(found[1].double(), bias, rtol=1e-12, atol=0)


def test_the_affine_map_of_a_layer_of_peft_contains_its_low_rank_update():
    torch.manual_seed(0)
    base = nn.Linear(5, 3)
    model = lora(base).double()
    layer = model.base_model.model[0]
    assert is_affine_layer(layer)
    assert not isinstance(layer, nn.Linear)
    update = layer.lora_B["default"].weight @ layer.lora_A["default"].weight * layer.scaling["default"]
    weight, bias = affine_map(layer)
    torch.testing.assert_close(weight, layer.base_layer.weight + update, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(bias, layer.base_layer.bias, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 2, 3),
        nn.Conv2d(4, 2, 1, stride=2),
        nn.Conv2d(4, 2, 1, padding=1),
        nn.Conv2d(4, 2, 1, groups=2),
        nn.ConvTranspose2d(4, 2, 1),
        nn.Bilinear(3, 4, 2),
        nn.ReLU(),
        nn.BatchNorm1d(3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_cannot_be_a_head(layer):
    assert not is_affine_layer(layer)


class TwoLayers(nn.Module):
    """Two heads on the same or on different features."""

    def __init__(self, same):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 1)
        self.same = same

    def forward(self, x):
        z = self.body(x).tanh()
        first, second = z[:, :4], z[:, 4:]
        return torch.cat([self.a(first), self.b(first if self.same else second)], dim=1)


@pytest.mark.parametrize(("same", "text"), [(True, "a&b"), (False, "a+b")])
def test_one_linear_layer_maps_the_features_of_several_layers_to_the_outputs(same, text):
    torch.manual_seed(0)
    model = TwoLayers(same).double().eval()
    with torch.no_grad():
        forward = FeatureModel(model, text)(torch.randn(9, 6, dtype=torch.float64))
    head = Head(model, text)
    assert forward.features.shape == (9, 4 if same else 8)
    assert head.linear.weight.dtype == torch.float64
    assert not any(parameter.requires_grad for parameter in head.linear.parameters())
    torch.testing.assert_close(head.linear(forward.features), forward.outputs, rtol=1e-12, atol=1e-12)
    assert list(head.modules) == ["a", "b"]
    assert isinstance(head.module, nn.ModuleList)


def test_the_only_linear_layer_is_the_head_itself():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    assert Head(model, "1").linear is model[1]
    assert Head(model, "1").module is model[1]
    assert Head(model[1], "").linear is model[1]


def test_layers_by_name():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Conv1d(4, 1, 1))
    assert affine_layers(model) == ["0", "2"]
    assert affine_layer(model, "2") is model[2]
    for name, found in (("1", "ReLU"), ("3", "nothing")):
        with pytest.raises(HeadError, match=rf"Expected nn.Linear at '{name}', found {found}.*\['0', '2'\]"):
            affine_layer(model, name)


LINEAR, PIXELS, STEPS = nn.Linear(2, 1), nn.Conv2d(2, 1, 1), nn.Conv1d(2, 1, 1)


@pytest.mark.parametrize(
    ("shape", "layer", "time_first", "expected"),
    [
        ((4, 2), LINEAR, False, (4, 1, 2)),
        ((4, 7, 2), LINEAR, False, (4, 7, 2)),
        ((4, 3, 5, 2), LINEAR, False, (4, 15, 2)),
        ((28, 2), LINEAR, False, (4, 7, 2)),
        ((7, 4, 2), LINEAR, True, (4, 7, 2)),
        ((7, 4, 2), LINEAR, False, None),
        ((27, 2), LINEAR, False, None),
        ((4, 7, 2), LINEAR, True, None),
        ((4, 2, 3, 5), PIXELS, False, (4, 15, 2)),
        ((4, 2, 7), STEPS, False, (4, 7, 2)),
        ((4, 2, 7), PIXELS, False, None),
    ],
)
def test_positions_of_a_layer(shape, layer, time_first, expected):
    values = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    found = to_positions(values, 4, layer, time_first=time_first)
    assert (None if found is None else tuple(found.shape)) == expected
    if found is not None and expected[1] > 1:
        sample = (
            values[:, 2] if time_first else values.reshape(4, -1, 2)[2] if layer is LINEAR else values[2].flatten(1).T
        )
        assert torch.equal(found[2], sample)


def test_pooling_of_positions():
    features = torch.randn(4, 5, 3)
    matched = torch.tensor([0, 4, 2, 1])
    assert torch.equal(pool_positions(features, "first"), features[:, 0])
    assert torch.equal(pool_positions(features, "last"), features[:, -1])
    assert torch.equal(pool_positions(features, "mean"), features.mean(dim=1))
    assert pool_positions(features, "all") is features
    expected = torch.stack([features[row, position] for row, position in enumerate(matched)])
    assert torch.equal(pool_positions(features, "matched", matched), expected)


def test_the_last_position_that_equals_the_output_is_matched():
    positions = torch.tensor([[[1.0], [2.0], [1.0]], [[5.0], [6.0], [7.0]], [[torch.nan], [3.0], [4.0]]])
    found, known = matching_positions(positions, torch.tensor([[1.0], [9.0], [torch.nan]]))
    assert known.tolist() == [True, False, True]
    assert found[0] == 2
    assert found[2] == 0


def test_the_pooling_function_is_validated():
    assert check_pooling(None) is None
    assert check_pooling(len) is len
    with pytest.raises(OptionError, match="Expected features to be a callable"):
        check_pooling("mean")
