import copy

import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.engine.optimizer import FlatGradients, total_norm
from regtta.engine.rollback import AdaptableState


def make_state(trainable="affine"):
    model = small_models.mlp()
    return model, AdaptableState(model, model[6], trainable)


def test_state_holds_trainable_parameters_the_head_and_all_buffers():
    model, state = make_state()
    assert set(state.trainable) == {"1.weight", "1.bias", "4.weight", "4.bias"}
    assert set(state.tensors()) == set(state.trainable) | {"6.weight", "6.bias"} | {
        name for name, _ in model.named_buffers()
    }
    assert {n for n, p in model.named_parameters() if p.requires_grad} == set(state.trainable)
    assert state.tensors()["1.weight"] is model[1].weight


def test_displacement_is_the_relative_distance_from_the_initial_weights():
    model, state = make_state()
    assert state.displacement() == 0
    moved = [model[1].weight, model[1].bias, model[4].weight, model[4].bias, model[6].weight, model[6].bias]
    initial = torch.cat([p.detach().flatten() for p in moved]).double()
    with torch.no_grad():
        model[4].bias += 0.5
        model[6].weight *= 1.5
        model[0].weight += 100  # frozen: not counted
    now = torch.cat([p.detach().flatten() for p in moved]).double()
    assert float(state.displacement()) == pytest.approx(((now - initial).norm() / initial.norm()).item(), rel=1e-6)


def test_displacement_with_zero_weights_or_no_trainable_parameters():
    model = nn.Sequential(nn.LayerNorm(2, bias=False), nn.Linear(2, 1))
    nn.init.zeros_(model[0].weight)
    for parameter in model[1].parameters():
        nn.init.zeros_(parameter)
    state = AdaptableState(model, model[1], "affine")
    assert state.displacement() == 0
    with torch.no_grad():
        model[0].weight += 1
    assert state.displacement() > 1e30
    assert AdaptableState(nn.Sequential(nn.ReLU()), None, None).displacement() == 0


def test_the_snapshot_and_the_origin_are_restored():
    model, state = make_state()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    state.save_snapshot()
    with torch.no_grad():
        model[1].running_mean += 1
        model[1].num_batches_tracked += 1
        model[4].weight += 1
        model[6].bias += 1
    state.restore_snapshot()
    assert torch.equal(model[1].running_mean, start["1.running_mean"])
    assert torch.equal(model[1].num_batches_tracked, start["1.num_batches_tracked"])
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        model[6].bias += 1
    state.load(state.origin)
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())


def test_a_fixed_head_is_part_of_the_state_but_not_of_the_snapshot():
    model = small_models.mlp()
    state = AdaptableState(model, model[6], "affine", head_moves=False)
    full = make_state()[1]
    assert state.tensors().keys() == full.tensors().keys()
    assert state.initial_norm == pytest.approx(full.initial_norm)
    state.save_snapshot()
    with torch.no_grad():
        model[6].bias += 1
        model[1].weight += 1
    assert state.displacement() == pytest.approx(len(model[1].weight) ** 0.5 / state.initial_norm)
    state.restore_snapshot()
    torch.testing.assert_close(model[6].bias, state.origin["6.bias"] + 1)
    assert torch.equal(model[1].weight, state.origin["1.weight"])


def test_gradients_match_backward_and_are_zero_for_unused_parameters():
    model, state = make_state()
    twin = copy.deepcopy(model)
    inputs = torch.randn(8, model[0].in_features)
    gradients = FlatGradients(state.trainable_flats)
    for _ in range(2):  # gradients are not accumulated
        gradients.compute(model[:3](inputs).square().sum())
    gradients.assign_to_parameters()
    twin[:3](inputs).square().sum().backward()
    for place in ("weight", "bias"):
        torch.testing.assert_close(getattr(model[1], place).grad, getattr(twin[1], place).grad)
        assert (getattr(model[4], place).grad == 0).all()
    joined = torch.cat([model[1].weight.grad, model[1].bias.grad])
    torch.testing.assert_close(total_norm(gradients.wholes), joined.norm())


def test_sparse_gradients_are_converted_to_dense():
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 1))
    state = AdaptableState(model, model[2], "extractor")
    gradients = FlatGradients(state.trainable_flats)
    gradients.compute(model(torch.tensor([[0, 1], [1, 4]])).sum())
    gradients.assign_to_parameters()
    first, second = model[2].weight.detach()[0].split(3)
    expected = torch.stack([first, first + second, torch.zeros(3), torch.zeros(3), second])
    torch.testing.assert_close(model[0].weight.grad, expected)


def test_load_writes_into_the_live_tensors():
    model, state = make_state()
    values = {name: torch.full_like(tensor, 2) for name, tensor in state.tensors().items()}
    state.load(values)
    assert (model[1].weight == 2).all()
    assert (model[4].running_var == 2).all()
    assert model[4].num_batches_tracked == 2
