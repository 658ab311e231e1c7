import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.attaching import Views, attach
from regtta import guards


class Counting(nn.Module):
    """Model that counts the forward passes of itself and of all its copies."""

    def __init__(self, model: nn.Module, calls: list[int]) -> None:
        super().__init__()
        self.model = model
        type(self).calls = calls

    def forward(self, x):
        self.calls.append(len(x))
        return self.model(x)


@pytest.mark.parametrize(
    ("chosen", "viewed", "expected"),
    [
        (guards.DEFAULT, False, "source changes nothing"),
        ((), False, "source changes nothing"),
        (regtta.SAFE, False, "steady for fewer than 128 samples"),
        (guards.DEFAULT, True, "source changes nothing"),
    ],
    ids=["default", "no guards", "safe", "watched"],
)
def test_one_forward_pass_per_step(chosen, viewed, expected):
    calls: list[int] = []
    model = Counting(small_models.mlp(), calls)
    source = regtta.collect(model, small_models.table(400).split(50))
    adapter = regtta.Adapter(model, regtta.NoAdaptation(), source, guards=chosen)
    calls.clear()
    batches = small_models.table(96, shift=3.0, seed=2).split(32)
    if viewed:
        attach(Views(), adapter)
    steps = [adapter.adapt(x) for x in batches]
    assert calls == [32, 32, 32]
    for x, step in zip(batches, steps, strict=True):
        with torch.no_grad():
            assert torch.equal(step.predictions, model.model(x))
        assert step.diagnostics == regtta.Diagnostics(None, None, 0.0, regtta.Verdict(learned=False, reason=expected))


def test_a_batch_rejected_by_a_guard_has_its_reason():
    adapter = regtta.Adapter(small_models.mlp(), regtta.NoAdaptation())
    assert adapter.adapt(small_models.table(1)).diagnostics.verdict.reason == "a batch of 1 has no variance"
