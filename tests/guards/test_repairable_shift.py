"""Learning from sensor faults and degraded images, and not from another population."""

import copy
import dataclasses
import logging

import pytest
import torch
from torch import nn

import regtta
from regtta.errors import OptionError, StatisticsError
from regtta.guards import NO_SHIFT, OTHER_POPULATION, RepairableShift

COLUMNS = 6
MIXING = torch.randn(COLUMNS, COLUMNS, generator=torch.Generator().manual_seed(0)) / 2 + torch.eye(COLUMNS)
OTHER = torch.randn(COLUMNS, COLUMNS, generator=torch.Generator().manual_seed(1)) / 2 + torch.eye(COLUMNS)


def rows(count, seed=1, mixing=MIXING):
    return torch.randn(count, COLUMNS, generator=torch.Generator().manual_seed(seed)) @ mixing


@pytest.fixture(scope="module")
def trained():
    """Return a model of a smooth function of the columns, and its statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(COLUMNS, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(150):
            x = rows(256, seed=int(torch.randint(10**6, ())))
            optimizer.zero_grad()
            (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
            optimizer.step()
    model.eval()
    return model, regtta.collect(model, rows(4000).split(500))


def adapter(trained, method="ssa", **options):
    model, source = trained
    return regtta.Adapter(model, method, source, guards=[RepairableShift(**options)])


def reasons(adapting, x):
    return [step.reason for step in adapting.run(x.split(64))]


def equals_source(adapting, trained):
    now = adapting.export().state_dict()
    return all(torch.equal(value, now[name]) for name, value in trained[0].state_dict().items())


def drifted(x):
    return x * torch.tensor([1.5, 1, 1, 1.5, 1, 1]) + torch.tensor([2.0, 0, 0, 2.0, 0, 0])


def test_without_a_shift_nothing_is_learned(trained):
    adapting = adapter(trained)
    assert set(reasons(adapting, rows(2000, seed=2))) == {NO_SHIFT}
    assert equals_source(adapting, trained)


def dead(x):
    x = x.clone()
    x[:, 3] = -4.0
    return x


@pytest.mark.parametrize("fault", [drifted, dead])
def test_sensor_faults_are_learned_from_throughout(trained, fault):
    assert set(reasons(adapter(trained), fault(rows(2000, seed=2)))) == {""}


def test_another_population_is_rejected_and_the_model_returns_to_the_source(trained):
    adapting = adapter(trained)
    found = reasons(adapting, rows(3000, seed=2, mixing=OTHER))
    assert found[-1] == OTHER_POPULATION
    assert set(found[20:]) == {OTHER_POPULATION}
    assert equals_source(adapting, trained)


def test_a_model_whose_outputs_moved_far_is_adapted_to_another_population(trained):
    far = rows(2000, seed=2, mixing=OTHER) + 3
    assert set(reasons(adapter(trained), far)) == {""}
    assert OTHER_POPULATION in reasons(adapter(trained, broken=100.0), far)


def test_after_the_shift_the_model_returns_to_the_source_exactly(trained):
    adapting = adapter(trained)
    assert set(reasons(adapting, drifted(rows(1000, seed=2)))) == {""}
    assert reasons(adapting, rows(6000, seed=3))[-1] == NO_SHIFT
    assert equals_source(adapting, trained)


def test_images_are_learned_from_if_they_shifted():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
        )
        images = torch.rand(600, 1, 8, 8)
        _ = model.train()(images)
    source = regtta.collect(model.eval(), images.split(100))
    adapting = regtta.Adapter(model, "bn_adapt", source, guards=[RepairableShift()], head=source.head)
    assert set(reasons(adapting, images)) == {NO_SHIFT}
    adapting.reset()
    assert set(reasons(adapting, images / 4)) == {""}


def test_statistics_without_a_covariance_of_the_inputs_are_told_once(trained, caplog):
    model, source = trained
    older = dataclasses.replace(source, input_covariance=torch.empty(0, 0, dtype=torch.float64))
    adapting = regtta.Adapter(model, "ssa", older, guards=[RepairableShift(broken=100.0)])
    with caplog.at_level(logging.WARNING):
        assert set(reasons(adapting, drifted(rows(640, seed=2)))) == {OTHER_POPULATION}
    (record,) = caplog.records
    assert record.message.startswith("The source statistics have no covariance")


def test_a_resumed_stream_has_the_same_verdicts(trained):
    x = torch.cat([drifted(rows(640, seed=2)), rows(1280, seed=3, mixing=OTHER)])
    whole = adapter(trained)
    expected = reasons(whole, x)
    first, second = adapter(trained), adapter(trained)
    found = reasons(first, x[:960])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert found + reasons(second, x[960:]) == expected
    assert len(set(expected)) > 1


def test_damaged_states_are_refused(trained):
    adapting = adapter(trained)
    reasons(adapting, drifted(rows(128, seed=2)))
    state = copy.deepcopy(adapting.state_dict())
    state["watches"]["0"]["inputs"]["sums"] = torch.zeros(2, 2, dtype=torch.float64)
    with pytest.raises(regtta.errors.StateError, match="inputs"):
        adapting.load_state_dict(state)


INVALID = {"level": 1, "tolerance": -1, "unexplained": -1, "broken": 0, "memory": 0, "input_memory": 0, "least": 0}


@pytest.mark.parametrize("options", [{name: value} for name, value in INVALID.items()])
def test_invalid_options(options):
    with pytest.raises(OptionError, match=f"Expected {next(iter(options))} to be a"):
        RepairableShift(**options)


def test_statistics_are_required(trained):
    with pytest.raises(StatisticsError, match="RepairableShift"):
        regtta.Adapter(trained[0], "bn_adapt", guards=[RepairableShift()], head="3")
