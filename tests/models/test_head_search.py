import logging

import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.errors import HeadError
from regtta.models.features import FeatureModel
from regtta.models.head_search import find_head
from regtta.models.model_inputs import ModelInputs

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
SERIES = torch.randn(6, 7, 5, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """Body and several linear layers; ``run(net, features)`` returns the output."""

    def __init__(self, run, **layers):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(5, 4)
        self.run = run
        for name, outputs in layers.items():
            self.add_module(name, nn.Linear(4, outputs))

    def forward(self, x):
        return self.run(self, self.body(x).tanh())


@pytest.mark.parametrize(
    ("run", "layers", "head"),
    [
        (lambda n, z: n.a(z).sigmoid(), {"a": 1}, "a"),
        (lambda n, z: n.a(z) * 3 - 1, {"a": 2}, "a"),
        (lambda n, z: n.a(z).softmax(dim=1) @ torch.arange(3.0), {"a": 3}, "a"),
        (lambda n, z: n.a(z)[:, 0], {"a": 2}, "a"),
        (lambda n, z: n.a(z).norm(dim=1), {"a": 2}, "a"),
        (lambda n, z: torch.cat([n.a(z), n.b(z)], dim=1), {"a": 1, "b": 1}, "a&b"),
        (lambda n, z: (n.a(z) + n.b(z)) / 2, {"a": 1, "b": 1}, "a&b"),
        (lambda n, z: n.a(z) * n.b(z).sigmoid(), {"a": 1, "b": 1}, "a&b"),
        (lambda n, z: torch.cat([n.a(z), n.b(z.relu())], dim=1), {"a": 1, "b": 1}, "a+b"),
        (lambda n, z: (n.b(z), n.a(z))[1], {"a": 1, "b": 1}, "a"),
        (lambda n, z: {"x": n.a(z), "y": n.b(z)}, {"a": 1, "b": 1}, "a&b"),
    ],
)
def test_the_layers_that_determine_the_output_are_found(run, layers, head):
    assert find_head(Net(run, **layers), X) == head


def test_a_layer_whose_output_is_selected_is_the_head():
    model = Net(lambda n, z: {"x": n.a(z), "y": n.b(z)}, a=1, b=1)
    assert find_head(model, X, output="y") == "b"
    assert find_head(model, X, output=0) == "a"


@pytest.mark.parametrize(
    ("run", "head"),
    [
        (lambda n, z: n.a(z), "a[all]"),
        (lambda n, z: n.a(z)[:, -1], "a[last]"),
        (lambda n, z: n.a(z)[:, 0], "a[first]"),
        (lambda n, z: n.a(z).mean(dim=1), "a[mean]"),
        (lambda n, z: n.a(z)[torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 5])], "a[matched]"),
        (lambda n, z: n.a(z)[:, -1].exp(), "a[last]"),
        (lambda n, z: n.a(z)[:, 0] * 2, "a[first]"),
        (lambda n, z: n.a(z).mean(dim=1).sigmoid() * 0 + n.a.bias + n.body.weight.sum(), None),
        (lambda n, z: n.a(z).exp(), "a[all]"),
        (lambda n, z: 2 * n.a(z).sum(dim=1) + 1, "a[mean]"),
        (lambda n, z: n.a(z.transpose(0, 1)).transpose(0, 1), "a[all/time-first]"),
        (lambda n, z: n.a(z.transpose(0, 1))[-1], "a[last/time-first]"),
        (lambda n, z: n.a(z.flatten(0, 1)).reshape(6, 7), "a[all]"),
        (lambda n, z: n.a(z[:, -1:]).squeeze(1), "a"),
    ],
)
def test_the_pooling_of_positions_is_found(run, head):
    model = Net(run, a=1)
    if head is None:
        with pytest.raises(HeadError, match="nor determines it"):
            find_head(model, SERIES)
        return
    assert find_head(model, SERIES) == head
    with torch.no_grad():
        forward = FeatureModel(model, head)(SERIES)
    assert forward.features.shape == ((6, 7, 4) if "all" in head else (6, 4))


def test_a_pooling_that_is_not_known_needs_a_function():
    model = Net(lambda n, z: (n.a(z) * torch.linspace(0, 1, 7)[:, None]).sum(dim=1), a=1)
    with pytest.raises(HeadError, match=r"found {'a': \(6, 7, 4\)}.*Pass features=<callable"):
        find_head(model, SERIES)
    head = find_head(model, SERIES, pooling=lambda z: z.mean(dim=1))
    assert head == "a[custom]"
    with pytest.raises(HeadError, match="pass it again, features="):
        FeatureModel(model, head)
    with torch.no_grad():
        found = FeatureModel(model, head, pooling=lambda z: z[:, 0])(SERIES).features
    assert found.shape == (6, 4)


@pytest.mark.parametrize("pooling", [lambda z: z, lambda z: z[:, 0, :2], lambda z: z.tolist()])
def test_a_function_that_returns_no_features_raises(pooling):
    model = Net(lambda n, z: n.a(z).mean(dim=1), a=1)
    with pytest.raises(HeadError, match=r"features= to return features of shape \(6, 4\)"):
        FeatureModel(model, "a[custom]", pooling=pooling)(SERIES)


def test_a_function_is_applied_to_the_inputs_of_every_layer():
    model = Net(lambda n, z: n.a(z).sum(dim=1) * n.b(z.relu()).sum(dim=1), a=1, b=1)
    head = find_head(model, SERIES, pooling=lambda z: z.mean(dim=1))
    assert head == "a+b[custom]"
    with torch.no_grad():
        assert FeatureModel(model, head, pooling=lambda z: z.mean(dim=1))(SERIES).features.shape == (6, 8)


def test_the_pooling_of_a_named_head_is_found():
    model = Net(lambda n, z: n.a(z)[:, -1] + n.b(z)[:, -1], a=1, b=1)
    assert find_head(model, SERIES, named="a") == "a[last]"
    assert find_head(model, SERIES, named="a[mean]") == "a[mean]"
    assert find_head(model, SERIES) == "a&b[last]"
    assert find_head(model, SERIES, named="a", pooling=lambda z: z.sum(dim=1)) == "a[custom]"


def test_a_model_that_adds_to_the_output_of_its_head(caplog):
    class Difference(Net):
        def forward(self, x):
            return x[:, :1] + self.a(self.body(x).tanh())

    with caplog.at_level(logging.INFO, logger="regtta"):
        assert find_head(Difference(None, a=1), X) == "a"
    assert "depend on it, but not on it alone" in caplog.text


def test_padded_sequences_match_the_position_of_each_sample():
    class LastToken(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.tokens = nn.Embedding(9, 4)
            self.score = nn.Linear(4, 1)

        def forward(self, ids, lengths):
            return self.score(self.tokens(ids))[torch.arange(ids.shape[0]), lengths - 1]

    model, ids = LastToken(), torch.arange(24).reshape(4, 6) % 9
    for lengths in ([6, 6, 6, 6], [1, 3, 6, 2]):  # the first batch may have no padding
        inputs = ModelInputs((ids, torch.tensor(lengths)))
        assert find_head(model, inputs) == "score[matched]"
        with torch.no_grad():
            forward = FeatureModel(model, "score[matched]")(inputs)
        expected = torch.stack([model.tokens(row)[length - 1] for row, length in zip(ids, lengths, strict=True)])
        assert torch.equal(forward.features, expected)


def test_one_sample_is_enough():
    assert find_head(Net(lambda n, z: n.a(z).sigmoid(), a=1), X[:1]) == "a"
    assert find_head(Net(lambda n, z: n.a(z)[:, -1].exp(), a=1), SERIES[:1]) == "a[last]"


def test_equal_samples_leave_the_layers_that_change_the_output():
    model = Net(lambda n, z: n.a(z).sigmoid(), a=1)
    assert find_head(model, X[:1].expand(4, 5)) == "a"


def test_too_many_layers_are_no_head():
    def run(n, z):
        return sum(getattr(n, f"a{index}")(z) for index in range(20))

    model = Net(run, **{f"a{index}": 1 for index in range(20)})
    assert find_head(model, X) == "a19"  # the last of those that contribute


def test_a_layer_of_the_head_that_runs_twice():
    model = Net(lambda n, z: n.a(z) * n.a(z.relu()).exp(), a=1)
    with pytest.raises(HeadError, match="'a' runs 2 times"):
        find_head(model, X)


def test_the_search_leaves_the_model_unchanged():
    model = Net(lambda n, z: n.a(z).add_(1).sigmoid_(), a=1).train()
    before = small_models.model_snapshot(model)
    assert find_head(model, X) == "a"
    small_models.assert_unchanged(before, model)
    assert not any("forward" in vars(module) for module in model.modules())
