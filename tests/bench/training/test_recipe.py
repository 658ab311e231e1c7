import torch
from torch import nn

from helpers import small_models
from regtta_bench.data import Domain
from regtta_bench.training import Classification, Recipe, Regression, make_seeded, train


def test_both_losses_written_out():
    model, inputs = small_models.mlp(outputs=3), small_models.table(6)
    outputs, classes = model(inputs), torch.tensor([0, 2, 1, 1, 0, 2])
    expected = -outputs.log_softmax(1)[range(6), classes].mean()
    torch.testing.assert_close(Classification().loss(model, inputs, classes.float().unsqueeze(1)), expected)
    targets = torch.randn(6, 3)
    torch.testing.assert_close(Regression().loss(model, inputs, targets), ((outputs - targets) ** 2).mean())


def test_a_classifier_learns():
    inputs = small_models.table(320)
    classes = (inputs[:, :1] > 0).float() + (inputs[:, :1] > 1).float()
    recipe = Recipe(epochs=20, batch_size=32, lr=1e-2)
    model = train(small_models.mlp(outputs=3), Domain(inputs, classes), recipe, seed=0, objective=Classification())
    assert (model(inputs).argmax(1) == classes.squeeze(1)).float().mean() > 0.9


def test_seeded_modules_depend_on_their_seed_only():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (make_seeded(lambda: nn.Linear(3, 2), seed) for seed in (0, 0, 1))
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(torch.get_rng_state(), before)
