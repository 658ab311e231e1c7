import pytest
import timm
import torch
import torchvision
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import HeadError
from regtta.models.features import FeatureModel, forward_without_features
from regtta.models.head_search import find_head


class Custom(nn.Module):
    """Model with a named head, an unused linear layer, and one after the head that does not affect the output."""

    def __init__(self, finish) -> None:
        super().__init__()
        self.unused = nn.Linear(4, 1)
        self.body = nn.Linear(5, 4)
        self.score = nn.Linear(4, 1)
        self.side = nn.Linear(4, 7)
        self.finish = finish

    def forward(self, x):
        z = self.body(x).relu()
        y = self.score(z)
        self.side(z)
        return self.finish(y)


FAMILIES = {
    "timm resnet": (lambda: timm.create_model("resnet10t", num_classes=1), 64, "fc"),
    "timm efficientnet": (
        lambda: timm.create_model("efficientnet_lite0", num_classes=1, drop_rate=0.2),
        64,
        "classifier",
    ),
    "timm convnext": (lambda: timm.create_model("convnext_atto", num_classes=2), 64, "head.fc"),
    "timm vit": (
        lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=1, drop_rate=0.1),
        32,
        "head",
    ),
    "torchvision resnet": (lambda: torchvision.models.resnet18(num_classes=1), 64, "fc"),
    "torchvision efficientnet": (
        lambda: torchvision.models.efficientnet_b0(num_classes=3),
        64,
        "classifier.1",
    ),
    "torchvision convnext": (lambda: torchvision.models.convnext_tiny(num_classes=1), 64, "classifier.2"),
    "torchvision vit": (
        lambda: torchvision.models.VisionTransformer(32, 16, 2, 2, 48, 96, dropout=0.1, num_classes=1),
        32,
        "heads.head",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_of_every_model_family_is_found_and_maps_features_to_outputs(family):
    make, size, name = FAMILIES[family]
    model = make().train()
    before = small_models.model_snapshot(model)
    inputs = torch.randn(3, 3, size, size)
    assert find_head(model, inputs) == name
    small_models.assert_unchanged(before, model)

    model.eval()
    with torch.no_grad():
        forward = FeatureModel(model, name)(inputs)
        head = model.get_submodule(name)
        again = forward.features @ head.weight.T + head.bias
    assert forward.features.shape == (3, head.in_features)
    torch.testing.assert_close(again, forward.outputs)
    small_models.assert_unchanged(before, model.train())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_model_family_adapts_its_norm_layers(family):
    make, size, name = FAMILIES[family]
    torch.manual_seed(0)
    images = torch.rand(24, 3, size, size)
    # The running statistics of untrained BatchNorm do not match the features, which become tiny.
    model = small_models.update_running_statistics(make(), images[:8])
    source = regtta.collect(model, images.split(8))
    assert source.head == name
    adapter = regtta.Adapter(model, regtta.SSA(k=3), source)
    steps = list(adapter.run((images[:12] * 0.5).split(6)))
    assert all(step.diagnostics.verdict.learned for step in steps)
    moved = [n for n, p in adapter.export().named_parameters() if not torch.equal(p, model.get_parameter(n))]
    assert moved
    assert not [n for n in moved if n.startswith(name)]


@pytest.mark.parametrize(
    "finish",
    [
        lambda y: y,
        lambda y: y.squeeze(-1),
        lambda y: y.flatten(),
        lambda y: y.unsqueeze(-1),
        lambda y: y.clone(),
    ],
    ids=["plain", "squeezed", "flattened", "unsqueezed", "copied"],
)
def test_the_head_of_a_custom_module_is_found_for_any_output_shape(finish):
    assert find_head(Custom(finish), torch.randn(6, 5)) == "score"


def test_a_head_called_by_keyword():
    class ByKeyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, 1)

        def forward(self, x):
            return self.head(input=x)

    x = torch.randn(3, 5)
    assert find_head(ByKeyword(), x) == "head"
    assert torch.equal(FeatureModel(ByKeyword(), "head")(x).features, x)


def test_a_head_that_returns_nan_is_found():
    inputs = torch.randn(6, 5)
    inputs[2] = torch.nan
    assert find_head(Custom(lambda y: y.squeeze(-1)), inputs) == "score"


def test_several_outputs():
    assert find_head(small_models.mlp(3), small_models.table(4)) == "6"


@pytest.mark.parametrize(
    "finish", [lambda y: y * 2 + 1, lambda y: y.mul_(2), lambda y: y.exp(), lambda y: y.sigmoid().squeeze(1)]
)
def test_the_output_may_be_changed_after_the_head(finish):
    assert find_head(Custom(finish), torch.randn(6, 5)) == "score"
    assert FeatureModel(Custom(finish), "score")(torch.randn(6, 5)).features.shape == (6, 4)


def test_the_error_for_a_constant_output_lists_the_layers():
    with pytest.raises(HeadError, match=r"Pass head=<name>.*'unused', 'body', 'score', 'side'"):
        find_head(Custom(lambda y: torch.ones(len(y), 3)), torch.randn(6, 5))


def test_a_model_without_a_linear_layer():
    with pytest.raises(HeadError, match="found no nn.Linear"):
        find_head(nn.Sequential(nn.Conv2d(3, 1, 16), nn.Flatten()), small_models.images(2))


def test_a_head_that_runs_twice():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, 5)

        def forward(self, x):
            return self.head(self.head(x))

    for run in (find_head, lambda m, x: FeatureModel(m, "head")(x)):
        with pytest.raises(HeadError, match=r"'head' runs 2 times.*linear layers here: \['head'\]"):
            run(Twice(), torch.randn(2, 5))


def test_a_head_that_never_runs():
    with pytest.raises(HeadError, match="'unused' does not run"):
        FeatureModel(Custom(lambda y: y), "unused")(torch.randn(2, 5))


def test_features_without_one_row_per_sample_raise():
    class Tokens(nn.Module):
        def __init__(self, flatten: bool) -> None:
            super().__init__()
            self.head = nn.Linear(5, 1)
            self.flatten = flatten

        def forward(self, x):
            return self.head(x.flatten(0, 1) if self.flatten else x)

    for model in (Tokens(False), Tokens(True)):
        with pytest.raises(HeadError, match=r"Expected features of shape \(2, D\) at the head 'head'"):
            FeatureModel(model, "head")(torch.randn(2, 7, 5))
    assert find_head(Tokens(False), torch.randn(2, 7, 5)) == "head[all]"


def test_the_name_of_another_layer_raises():
    with pytest.raises(HeadError, match=r"Expected nn.Linear at '1', found BatchNorm1d.*\['0', '3', '6'\]"):
        FeatureModel(small_models.mlp(), "1")
    with pytest.raises(HeadError, match="Expected nn.Linear at 'fc', found nothing"):
        FeatureModel(small_models.mlp(), "fc")


def test_hooks_are_removed_after_a_failed_forward_pass():
    model = small_models.mlp()
    before = small_models.model_snapshot(model)
    for run in (lambda x: find_head(model, x), FeatureModel(model, "6")):
        with pytest.raises(RuntimeError):
            run(torch.randn(2, 99))
    small_models.assert_unchanged(before, model)


def test_find_head_restores_mixed_training_modes():
    model = small_models.cnn()
    model[1].train()
    before = small_models.model_snapshot(model)
    find_head(model, small_models.images(4))
    small_models.assert_unchanged(before, model)


def test_forward_without_features_runs_any_model():
    forward = forward_without_features(nn.Sequential(nn.Conv2d(3, 1, 16), nn.Flatten()))(small_models.images(4))
    assert forward.outputs.shape == (4, 1)
    assert forward.features.shape == (4, 0)
