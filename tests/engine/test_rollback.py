import copy

import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.engine.rollback import AdaptableState


def parts_of(which="affine"):
    model = small_models.mlp()
    return model, AdaptableState(model, model[6], which)


def test_it_holds_parameters_that_move_the_head_and_all_buffers():
    model, parts = parts_of()
    assert set(parts.trainable) == {"1.weight", "1.bias", "4.weight", "4.bias"}
    assert set(parts.tensors()) == set(parts.trainable) | {"6.weight", "6.bias"} | {
        name for name, _ in model.named_buffers()
    }
    assert {n for n, p in model.named_parameters() if p.requires_grad} == set(parts.trainable)
    assert parts.tensors()["1.weight"] is model[1].weight


def test_displacement_is_the_relative_distance_from_the_start():
    model, parts = parts_of()
    assert parts.displacement() == 0
    moved = [model[1].weight, model[1].bias, model[4].weight, model[4].bias, model[6].weight, model[6].bias]
    began = torch.cat([p.detach().flatten() for p in moved]).double()
    with torch.no_grad():
        model[4].bias += 0.5
        model[6].weight *= 1.5
        model[0].weight += 100  # frozen: not counted
    now = torch.cat([p.detach().flatten() for p in moved]).double()
    assert float(parts.displacement()) == pytest.approx(((now - began).norm() / began.norm()).item(), rel=1e-6)


def test_displacement_of_a_model_that_starts_at_zero_or_moves_nothing():
    model = nn.Sequential(nn.LayerNorm(2, bias=False), nn.Linear(2, 1))
    nn.init.zeros_(model[0].weight)
    for parameter in model[1].parameters():
        nn.init.zeros_(parameter)
    parts = AdaptableState(model, model[1], "affine")
    assert parts.displacement() == 0
    with torch.no_grad():
        model[0].weight += 1
    assert parts.displacement() > 1e30
    assert AdaptableState(nn.Sequential(nn.ReLU()), None, None).displacement() == 0


def test_what_was_remembered_and_the_origin_come_back():
    model, parts = parts_of()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    parts.remember()
    with torch.no_grad():
        model[1].running_mean += 1
        model[1].num_batches_tracked += 1
        model[4].weight += 1
        model[6].bias += 1
    parts.restore()
    assert torch.equal(model[1].running_mean, start["1.running_mean"])
    assert torch.equal(model[1].num_batches_tracked, start["1.num_batches_tracked"])
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        model[6].bias += 1
    parts.load(parts.origin)
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())


def test_a_head_that_stays_is_not_remembered_yet_part_of_what_the_model_is():
    model = small_models.mlp()
    parts = AdaptableState(model, model[6], "affine", head_moves=False)
    whole = parts_of()[1]
    assert parts.tensors().keys() == whole.tensors().keys()
    assert parts.initial_norm == pytest.approx(whole.initial_norm)
    parts.remember()
    with torch.no_grad():
        model[6].bias += 1
        model[1].weight += 1
    assert parts.displacement() == pytest.approx(len(model[1].weight) ** 0.5 / parts.initial_norm)
    parts.restore()
    torch.testing.assert_close(model[6].bias, parts.origin["6.bias"] + 1)
    assert torch.equal(model[1].weight, parts.origin["1.weight"])


def test_gradients_are_those_of_backward_and_nothing_where_the_loss_does_not_reach():
    model, parts = parts_of()
    twin = copy.deepcopy(model)
    inputs = torch.randn(8, model[0].in_features)
    for _ in range(2):  # those of before are not added to
        parts.gradients.take(model[:3](inputs).square().sum())
    parts.gradients.hand_out()
    twin[:3](inputs).square().sum().backward()
    for place in ("weight", "bias"):
        torch.testing.assert_close(getattr(model[1], place).grad, getattr(twin[1], place).grad)
        assert (getattr(model[4], place).grad == 0).all()
    together = torch.cat([model[1].weight.grad, model[1].bias.grad])
    torch.testing.assert_close(parts.gradients.norm(), together.norm())


def test_gradients_that_come_sparse_are_taken_as_they_are_meant():
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 1))
    parts = AdaptableState(model, model[2], "extractor")
    parts.gradients.take(model(torch.tensor([[0, 1], [1, 4]])).sum())
    parts.gradients.hand_out()
    first, second = model[2].weight.detach()[0].split(3)
    expected = torch.stack([first, first + second, torch.zeros(3), torch.zeros(3), second])
    torch.testing.assert_close(model[0].weight.grad, expected)


def test_loading_writes_into_the_live_tensors():
    model, parts = parts_of()
    values = {name: torch.full_like(tensor, 2) for name, tensor in parts.tensors().items()}
    parts.load(values)
    assert (model[1].weight == 2).all()
    assert (model[4].running_var == 2).all()
    assert model[4].num_batches_tracked == 2
