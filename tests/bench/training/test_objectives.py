import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import regtta
from helpers import small_models
from regtta_bench.data import Domain
from regtta_bench.training import Recipe, train
from regtta_bench.training.objectives import (
    AdversarialObjective,
    ReverseGradient,
    RotationObjective,
    decay_learning_rate,
    reversal_scale,
)


def test_the_rotation_objective_is_the_sum_of_both_losses():
    model, images = small_models.cnn().eval(), small_models.images(6)
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
    source = Domain(small_models.images(320), torch.ones(320, 1))
    objective = RotationObjective("9", 10, seed=0)
    before = objective.branch.weight.detach().clone()
    model = train(small_models.cnn(), source, Recipe(epochs=15, batch_size=32, lr=1e-2), seed=0, objective=objective)
    assert not torch.equal(objective.branch.weight, before)
    step = regtta.Adapter(model, regtta.TTT(branch=objective.branch)).adapt(small_models.images(64, seed=9))
    assert step.diagnostics.loss < 0.7 * math.log(4)


def test_random_draws_of_an_objective_follow_the_seed_of_the_training():
    source = Domain(small_models.images(64), torch.ones(64, 1))
    finals = []
    for seed in (0, 0, 1):
        torch.rand(seed + 3)  # earlier draws must not matter
        objective = RotationObjective("9", 10, seed=0)
        train(small_models.cnn(), source, Recipe(epochs=2, batch_size=32, lr=1e-2), seed=seed, objective=objective)
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
    assert decay_learning_rate(0.2, 0.5) == pytest.approx(0.2 / 6**0.75)
    objective = AdversarialObjective("6", 12, small_models.table(50), recipe=Recipe(lr=0.1), seed=0)
    for rate in (0.1, torch.tensor(0.1)):
        optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=rate)
        objective.advance(0.3, optimizer)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1 / 4**0.75)
    assert objective._scale.item() == pytest.approx(reversal_scale(0.3))


def bare_mlp():
    """Return a model without BatchNorm, which would remove a shift of the inputs if each domain is normalised alone."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 1))


def test_adversarial_training_makes_the_domains_harder_to_tell_apart():
    inputs = small_models.table(400)
    source, target = Domain(inputs, inputs[:, :1].clone()), small_models.table(400, seed=8)
    target[:, 1:] += 1.5  # all columns but the label

    def gap(model):
        with torch.no_grad():
            means = [model[:4](x).mean(0) for x in (inputs, target)]
            return (means[0] - means[1]).norm().item() / model[:4](inputs).std().item()

    recipe = Recipe(epochs=25, batch_size=50, lr=1e-2)
    plain = train(bare_mlp(), source, recipe, seed=0)
    objective = AdversarialObjective("4", 12, target, recipe=recipe, seed=0)
    adversarial = train(bare_mlp(), source, recipe, seed=0, objective=objective)
    assert gap(adversarial) < 0.7 * gap(plain)
    error = nn.functional.mse_loss(adversarial(inputs), source.targets).item()
    assert error < 0.3  # and it still regresses


def test_source_and_target_are_normalised_each_by_itself():
    """Loss, gradients and running statistics agree with two consecutive passes, written out."""
    torch.manual_seed(0)
    inputs, targets, unlabelled = torch.randn(8, 5), torch.randn(8, 1), torch.randn(30, 5) * 2 + 3
    ours, plain = small_models.mlp().train(), small_models.mlp().train()
    objective = AdversarialObjective("6", 12, unlabelled, recipe=Recipe(), seed=0)
    objective.advance(0.4, torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1))
    torch.manual_seed(3)
    loss = objective.loss(ours, inputs, targets)
    loss.backward()
    torch.manual_seed(3)
    drawn = torch.randint(30, (8,))
    at_source = plain[:6](inputs)
    at_target = plain[:6](unlabelled[drawn])
    regression = ((plain[6](at_source) - targets) ** 2).mean()
    logits = objective.discriminator(torch.cat([at_source, at_target])).squeeze(1)
    told_apart = torch.cat([functional.softplus(logits[:8]), functional.softplus(-logits[8:])]).mean()
    assert loss.item() == pytest.approx((regression + told_apart).item(), rel=1e-5)
    scale = 2 / (1 + math.exp(-4)) - 1
    expected = torch.autograd.grad(regression - scale * told_apart, list(plain.parameters()))
    for (name, parameter), gradient in zip(ours.named_parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6, msg=name)
    for (name, value), (_, by_hand) in zip(ours.named_buffers(), plain.named_buffers(), strict=True):
        torch.testing.assert_close(value, by_hand, msg=name)


def test_batch_norm_hides_a_pure_shift_of_the_inputs_from_the_discriminator():
    """BatchNorm as the first layer removes a shift of the inputs: no discriminator is better than chance."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).train()
    inputs = torch.randn(64, 4)
    target = inputs + 5
    objective = AdversarialObjective("3", 8, target, recipe=Recipe(), seed=0)
    optimizer = torch.optim.Adam(objective.discriminator.parameters(), lr=1e-3)
    losses = []
    for _ in range(60):  # the discriminator alone learns
        optimizer.zero_grad()
        loss = objective.loss(model, inputs, model(inputs).detach())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) / 10 > 0.8 * math.log(2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_captured_adversarial_step_trains_like_an_eager_one():
    inputs = small_models.table(320)
    source = Domain(inputs, inputs[:, :1].clone())
    target = small_models.table(1, shift=1.5).expand(40, 5)  # whatever is drawn of it is the same
    recipe, models = Recipe(epochs=3, batch_size=64, lr=1e-3), []
    for device in ("cpu", "cuda"):
        objective = AdversarialObjective("6", 12, target.to(device), recipe=recipe, seed=0)
        models.append(
            train(small_models.mlp().to(device), source, recipe, seed=0, objective=objective).cpu().state_dict()
        )
    for name, value in models[0].items():
        if name in ("0.bias", "3.bias"):
            continue  # before BatchNorm: no gradient but rounding, which Adam makes as large as any other
        torch.testing.assert_close(models[1][name], value, rtol=1e-2, atol=1e-3, msg=name)
