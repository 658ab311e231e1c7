import copy
import functools

import pytest
import torch
from torch import nn

from regtta.engine.optimizer import fused_step
from regtta.methods.base import OPTIMIZERS

FACTORIES = {name: functools.partial(factory, lr=0.01) for name, factory in OPTIMIZERS.items()} | {
    "adam, other options": functools.partial(
        torch.optim.Adam, lr=0.02, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1, maximize=True, fused=True
    ),
    "adamw, other options": functools.partial(torch.optim.AdamW, lr=0.02, weight_decay=0.3, fused=True),
    "amsgrad": functools.partial(torch.optim.Adam, lr=0.02, amsgrad=True, fused=True),
    "not fused": functools.partial(torch.optim.Adam, lr=0.02),
}


def parameters():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(7, generator=generator), torch.randn(3, generator=generator, dtype=torch.float64)
    return [nn.Parameter(value) for value in values]


def gradients(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(7, generator=generator), torch.randn(3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", FACTORIES)
def test_the_fused_step_matches_the_optimizers_own_step(name):
    own, bare = parameters(), parameters()
    first, second = FACTORIES[name](own), FACTORIES[name](bare)
    step = fused_step(second)
    for number in range(5):
        for ours, theirs, gradient in zip(bare, own, gradients(number), strict=True):
            ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        first.step()
        step()
        for ours, theirs in zip(bare, own, strict=True):
            assert torch.equal(ours, theirs)
            assert ours.requires_grad
    for ours, theirs in zip(bare, own, strict=True):
        assert first.state[theirs].keys() == second.state[ours].keys()
        for key, value in first.state[theirs].items():
            assert torch.equal(torch.as_tensor(second.state[ours][key]), torch.as_tensor(value)), key


def test_the_fused_step_continues_from_a_loaded_state():
    before, after = parameters(), parameters()
    first, second = FACTORIES["adam"](before), FACTORIES["adam"](after)
    steps = fused_step(first), fused_step(second)

    def take_step(number, index, params):
        for parameter, gradient in zip(params, gradients(number), strict=True):
            parameter.grad = gradient
        steps[index]()

    for number in range(3):
        take_step(number, 0, before)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    with torch.no_grad():
        for ours, theirs in zip(after, before, strict=True):
            ours.copy_(theirs)
    take_step(3, 0, before)
    take_step(3, 1, after)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(after, before, strict=True))
