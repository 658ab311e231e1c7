import math

import pytest
import torch
from torch import nn

import regtta
import zoo
from regtta.experiments.datasets import Domain
from regtta.experiments.training import Recipe, train
from regtta.experiments.training.dann import (
    AdversarialObjective,
    ReverseGradient,
    decayed_rate,
    reversal_scale,
)
from regtta.experiments.training.rotation import RotationObjective


def test_the_rotation_objective_is_the_sum_of_both_losses():
    model, images = zoo.cnn().eval(), zoo.images(6)
    targets = torch.ones(6, 1)
    objective = RotationObjective("9", 10, seed=0)
    torch.manual_seed(3)
    loss = objective.loss(model, images, targets)
    torch.manual_seed(3)
    turns = torch.randint(4, (6,))
    turned = torch.stack([torch.rot90(image, int(turn), (1, 2)) for image, turn in zip(images, turns, strict=True)])
    logits = objective.branch(model[:9](turned))
    expected = ((model(images) - 1) ** 2).mean() - logits.log_softmax(1)[range(6), turns].mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_branch_learns_along_and_serves_ttt():
    source = Domain(zoo.images(320), torch.ones(320, 1))
    objective = RotationObjective("9", 10, seed=0)
    before = objective.branch.weight.detach().clone()
    model = train(zoo.cnn(), source, Recipe(epochs=15, batch_size=32, lr=1e-2), seed=0, objective=objective)
    assert not torch.equal(objective.branch.weight, before)
    step = regtta.Adapter(model, regtta.TTT(branch=objective.branch)).adapt(zoo.images(64, seed=9))
    assert step.diagnostics.loss < 0.7 * math.log(4)


def test_what_an_objective_draws_comes_from_the_seed_of_the_training():
    source = Domain(zoo.images(64), torch.ones(64, 1))
    finals = []
    for seed in (0, 0, 1):
        torch.rand(seed + 3)  # whatever was drawn before does not matter
        objective = RotationObjective("9", 10, seed=0)
        train(zoo.cnn(), source, Recipe(epochs=2, batch_size=32, lr=1e-2), seed=seed, objective=objective)
        finals.append(objective.branch.weight.detach())
    assert torch.equal(finals[0], finals[1])
    assert not torch.equal(finals[0], finals[2])


def test_the_gradient_is_reversed_and_scaled():
    values = torch.randn(4, requires_grad=True)
    out = ReverseGradient.apply(values, torch.tensor(0.5))
    assert torch.equal(out, values)
    (out * torch.arange(4.0)).sum().backward()
    torch.testing.assert_close(values.grad, -0.5 * torch.arange(4.0))


def test_the_schedules_are_ganins():
    assert reversal_scale(0.5) == pytest.approx(2 / (1 + math.exp(-5)) - 1)
    assert decayed_rate(0.2, 0.5) == pytest.approx(0.2 / 6**0.75)
    objective = AdversarialObjective("6", 12, zoo.table(50), recipe=Recipe(lr=0.1), seed=0)
    for rate in (0.1, torch.tensor(0.1)):
        optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=rate)
        objective.advance(0.3, optimizer)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1 / 4**0.75)
    assert objective._scale.item() == pytest.approx(reversal_scale(0.3))


def test_adversarial_training_makes_the_domains_harder_to_tell_apart():
    inputs = zoo.table(400)
    source, target = Domain(inputs, inputs[:, :1].clone()), zoo.table(400, shift=1.5, seed=8)

    def gap(model):
        with torch.no_grad():
            means = [model[:6](x).mean(0) for x in (inputs, target)]
        return (means[0] - means[1]).norm().item() / model[:6](inputs).std().item()

    recipe = Recipe(epochs=25, batch_size=50, lr=3e-3)
    plain = train(zoo.mlp(), source, recipe, seed=0)
    objective = AdversarialObjective("6", 12, target, recipe=recipe, seed=0)
    adversarial = train(zoo.mlp(), source, recipe, seed=0, objective=objective)
    assert gap(adversarial) < 0.7 * gap(plain)
    error = nn.functional.mse_loss(adversarial(inputs), source.targets).item()
    assert error < 0.3  # and it still regresses
