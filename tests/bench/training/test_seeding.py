import torch
from torch import nn

from regtta_bench.training.recipe import seeded


def test_modules_come_from_their_seed_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (seeded(lambda: nn.Linear(3, 2), seed) for seed in (0, 0, 1))
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(torch.get_rng_state(), before)
