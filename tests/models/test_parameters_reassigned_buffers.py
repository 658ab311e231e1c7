"""Models that assign new tensors to their buffers in ``forward``: reset, rollback, resume and export are exact."""

import copy

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from helpers.states import assert_same
from regtta.guards import DEFAULT, Guard


class MovingMean(nn.Module):
    """Layer that subtracts a moving mean, to which it assigns a new tensor in every pass and mode."""

    def __init__(self, width, *, in_place=False):
        super().__init__()
        self.register_buffer("ema", torch.zeros(width))
        self.register_buffer("last", None)
        self.in_place = in_place

    def forward(self, x):
        ema = 0.9 * self.ema + 0.1 * x.detach().mean(dim=0)
        if self.in_place:
            self.ema.copy_(ema)
        else:
            self.ema = ema
        return x - self.ema


def model(**options):
    net = small_models.mlp()
    return nn.Sequential(net[0], MovingMean(12, **options), *net[1:])


def stream(batches, seed=2, shift=1.0):
    return small_models.table(batches * 16, shift=shift, seed=seed).split(16)


METHODS = [regtta.SSA(k=4), regtta.SSA(k=4, steps=2), regtta.BNAdapt(), regtta.Prototype()]


def adapter_of(method=METHODS[0], **options):
    net = options.pop("net", None) or model()
    return regtta.Adapter(net, method, regtta.collect(net, small_models.table(400).split(50)), **options)


@pytest.mark.parametrize("method", METHODS)
def test_reset_equals_a_new_adapter(method):
    adapter, fresh = adapter_of(method), adapter_of(method)
    for x in (*stream(3), torch.full((16, 5), torch.nan)):
        adapter.adapt(x)
    adapter.reset()
    assert_same(adapter.state_dict() | {"begun": ""}, fresh.state_dict() | {"begun": ""})
    for x in stream(3, seed=5):
        assert torch.equal(adapter.adapt(x).predictions, fresh.adapt(x).predictions)


@pytest.mark.parametrize("method", METHODS)
def test_an_adaptation_pass_updates_the_buffer_as_the_model_does(method):
    """The expected buffer is computed with the model alone, whose first layer does not change."""
    adapter, plain = adapter_of(method), model()
    for x in stream(3):
        adapter.adapt(x)
        for _ in range(getattr(method, "steps", 1)):
            plain[:2](x)
    torch.testing.assert_close(adapter.export()[1].ema, plain[1].ema)


def test_predictions_change_nothing():
    adapter = adapter_of()
    adapter.adapt(stream(1)[0])
    x, state = stream(1, seed=7)[0], adapter.state_dict()
    first = adapter.predict(x)
    for _ in range(3):
        adapter.predict(torch.full_like(x, torch.nan))
        adapter.features(x + 100)
        assert torch.equal(adapter.predict(x), first)
    assert_same(adapter.state_dict(), state)


def test_predictions_before_the_first_batch_change_nothing():
    net = model()
    adapter = regtta.Adapter(net, regtta.BNAdapt())
    x = stream(1)[0]
    assert torch.equal(adapter.predict(x), adapter.predict(x))


class Vetoing(Guard):
    def after_step(self, outcome):
        return "vetoed"


def test_a_vetoed_step_is_undone_exactly():
    adapter = adapter_of(guards=(*DEFAULT, Vetoing()))
    state = adapter.state_dict()
    for index, x in enumerate(stream(3)):
        assert not adapter.adapt(x).diagnostics.verdict.learned
        assert_same(adapter.state_dict(), state | {"index": index + 1})


def test_rejected_batches_leave_the_state_unchanged():
    struck, spared = adapter_of(), adapter_of()
    for x in stream(4):
        for bad in (torch.full_like(x, torch.nan), x * 3e38, x[:1]):
            struck.adapt(bad)
        assert torch.equal(struck.adapt(x).predictions, spared.adapt(x).predictions)


def test_a_resumed_stream_continues_exactly():
    whole, second = adapter_of(), adapter_of()
    batches = stream(6)
    steps = [whole.adapt(x) for x in batches[:3]]
    second.load_state_dict(whole.state_dict())
    for x in batches[3:]:
        assert torch.equal(second.adapt(x).predictions, whole.adapt(x).predictions)
    assert len(steps) == 3


def test_assignment_and_in_place_update_are_equal_if_no_batch_is_rejected():
    """In-place updates happen in every pass, assignments only in adaptation passes; DEFAULT guards run no others."""
    assigned, written = adapter_of(), adapter_of(net=model(in_place=True), allow_mismatch=True)
    for x in stream(4):
        assert torch.equal(assigned.adapt(x).predictions, written.adapt(x).predictions)


class Remembering(MovingMean):
    """Layer that stores the last batch in a buffer which is initially empty."""

    def forward(self, x):
        self.last = x.detach()
        return super().forward(x)


def test_a_buffer_of_another_shape_is_restored_with_one_warning(caplog):
    net = small_models.mlp()
    net = nn.Sequential(net[0], Remembering(12), *net[1:])
    adapter = adapter_of(net=net)
    for x in stream(3):
        adapter.adapt(x)
    assert sum("changes the shape" in line for line in caplog.messages) == 1
    assert adapter.export()[1].last is None
    adapter.predict(x)
    assert adapter.export()[1].last is None


def test_the_model_of_the_user_is_unchanged():
    net = model()
    before = copy.deepcopy(net.state_dict())
    adapter = adapter_of(net=net)
    list(adapter.run(stream(3)))
    assert_same(dict(net.state_dict()), dict(before))
