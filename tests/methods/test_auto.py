"""Auto: SSA's loss on repairable shifts, with gradient steps as long as the loss decreases."""

import copy
import math

import pytest
import torch
from torch import nn

import regtta
from regtta.errors import OptionError, StateError
from regtta.guards import DEFAULT, NO_SHIFT, OTHER_POPULATION, RepairableShift
from regtta.methods import Batch, MethodContext
from regtta.methods.auto import MEMORY

COLUMNS = 6


def mixing(seed):
    return torch.randn(COLUMNS, COLUMNS, generator=torch.Generator().manual_seed(seed)) / 2 + torch.eye(COLUMNS)


def rows(count, seed=1, of=0):
    return torch.randn(count, COLUMNS, generator=torch.Generator().manual_seed(seed)) @ mixing(of)


def drifted(x):
    return x * torch.tensor([1.5, 1, 1, 1.5, 1, 1]) + torch.tensor([2.0, 0, 0, 2.0, 0, 0])


@pytest.fixture(scope="module")
def trained():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(COLUMNS, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(200):
            x = rows(256, seed=step)
            optimizer.zero_grad()
            (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
            optimizer.step()
    model.eval()
    return model, regtta.collect(model, rows(4000).split(500))


def error(predictions, x):
    return float((predictions - x.sum(dim=1, keepdim=True)).square().mean())


def rule(trained, **options):
    model, source = trained
    return regtta.Auto(**options).start(MethodContext(model, model[-1], source))


def batch(features):
    return Batch(features[:, :1], features, features[:, :1], None, lambda inputs: None)


def test_the_guard_is_added_once(trained):
    model, source = trained
    assert regtta.Adapter(model, "auto", source).guards == (*DEFAULT, RepairableShift())
    own = (RepairableShift(broken=2.0),)
    assert regtta.Adapter(model, "auto", source, guards=own).guards == own
    assert regtta.Adapter(model, "ssa", source, guards=()).guards == ()


def test_the_loss_is_that_of_ssa(trained):
    model, source = trained
    features = torch.randn(64, 32, generator=torch.Generator().manual_seed(3))
    same = regtta.SSA().start(MethodContext(model, model[-1], source)).update(batch(features))
    assert rule(trained).update(batch(features)).item() == same.item()


def test_sensor_drift_is_repaired_and_the_source_model_kept_otherwise(trained):
    model, source = trained
    clean = rows(3000, seed=5)
    adapter = regtta.Adapter(model, "auto", source)
    for x in drifted(clean).split(64):
        adapter.adapt(x)
    with torch.no_grad():
        before = error(model(drifted(clean)), clean)
    assert error(adapter.predict(drifted(clean)), clean) < 0.2 * before
    for x, reason in ((clean, NO_SHIFT), (rows(3000, seed=6, of=4), OTHER_POPULATION)):
        adapter.reset()
        assert [step.reason for step in adapter.run(x.split(64))][-1] == reason
        assert torch.equal(adapter.predict(x), model(x).detach())


def test_steps_stop_when_the_loss_no_longer_decreases_and_resume_when_it_rises(trained):
    found = rule(trained, patience=5)
    features = torch.randn(64, 32, generator=torch.Generator().manual_seed(3))
    losses = [found.update(batch(features)) for _ in range(10)]
    assert [loss is None for loss in losses] == [False] * 5 + [True] * 5  # the first batch sets the best loss
    resumed = [found.update(batch(features + 20)) for _ in range(3)]
    assert all(loss is not None for loss in resumed)


def test_the_average_is_that_of_all_batches_until_the_memory_is_full(trained):
    found = rule(trained)
    generator = torch.Generator().manual_seed(4)
    losses = [found.update(batch(torch.randn(64, 32, generator=generator))).item() for _ in range(MEMORY)]
    assert found.average == pytest.approx(math.fsum(losses) / MEMORY, rel=1e-9)


def test_repeated_steps_on_a_batch_are_not_counted(trained):
    found, features = rule(trained), torch.randn(64, 32)
    found.update(batch(features))
    found.update(Batch(features, features, features[:, :1], None, lambda inputs: None, repeated=True))
    assert found.batches == 1


def test_a_resumed_stream_stops_at_the_same_batch(trained):
    model, source = trained
    x = drifted(rows(2560, seed=7)).split(64)

    def losses(adapter, batches):
        return [adapter.adapt(part).loss for part in batches]

    whole = losses(regtta.Adapter(model, regtta.Auto(patience=8), source), x)
    first, second = (regtta.Adapter(model, regtta.Auto(patience=8), source) for _ in range(2))
    part = losses(first, x[:13])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert part + losses(second, x[13:]) == whole
    assert None in whole


@pytest.mark.parametrize("change", [{"stale": 9}, {"average": "0"}, {"best": float("nan")}, {"batches": -1}])
def test_damaged_states_are_refused(trained, change):
    found = rule(trained)
    found.update(batch(torch.randn(64, 32)))
    with pytest.raises(StateError, match=next(iter(change)) if "batches" not in change else "batches"):
        found.validate_state({**found.state_dict(), **change}, "rule")


@pytest.mark.parametrize("options", [{"patience": 0}, {"k": 0}])
def test_invalid_options(options):
    with pytest.raises(OptionError, match=f"Expected {next(iter(options))} to be a"):
        regtta.Auto(**options)
