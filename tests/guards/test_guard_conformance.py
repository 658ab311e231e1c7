"""Checks of all guards: accepted options, source statistics, number of forward passes."""

import pytest
import torch

import regtta
from helpers import regressor
from helpers.guard_inputs import batch_without_forward
from regtta.errors import OptionError, StatisticsError
from regtta.guards import (
    DEFAULT,
    SAFE,
    BoundedDisplacement,
    BoundedLoss,
    FiniteInputs,
    FiniteStep,
    Gate,
    Guard,
    GuardContext,
    HealthCheck,
    IncomingBatch,
    LabelShiftGuard,
    MinBatchSize,
    NonConstantInputs,
    OutlierRows,
    OutputRange,
    RepairableShift,
    StationarityGuard,
    StepStats,
    SubspaceEnergy,
)
from regtta.models.features import Forward


def test_the_base_class_accepts_everything():
    assert Guard().exclude_rows(batch_without_forward(torch.full((1, 1), torch.nan))) is None
    assert Guard().before_step(batch_without_forward(torch.full((1, 1), torch.nan))) is None
    assert Guard().after_step(StepStats(float("nan"), None)) is None


def test_default_guards():
    assert {type(guard) for guard in DEFAULT} == {
        FiniteInputs,
        OutlierRows,
        MinBatchSize,
        NonConstantInputs,
        FiniteStep,
    }


@pytest.mark.parametrize(
    ("guard", "options"),
    [
        (MinBatchSize, {"least": 0}),
        (MinBatchSize, {"least": 1.5}),
        (BoundedLoss, {"factor": 0}),
        (BoundedLoss, {"memory": 0}),
        (BoundedDisplacement, {"limit": 0}),
        (BoundedDisplacement, {"limit": float("nan")}),
        (SubspaceEnergy, {"factor": -1}),
        (SubspaceEnergy, {"first": 0}),
        (OutputRange, {"distance": 0}),
        (OutputRange, {"ratio": "10"}),
        (OutputRange, {"first": True}),
        (LabelShiftGuard, {"limit": -1}),
        (LabelShiftGuard, {"memory": 0}),
        (StationarityGuard, {"memory": 0}),
        (StationarityGuard, {"block": 0}),
        (StationarityGuard, {"level": 1}),
        (HealthCheck, {"every": 0}),
        (HealthCheck, {"memory": -5}),
    ],
)
def test_invalid_options(guard, options):
    with pytest.raises(OptionError, match=f"Expected {next(iter(options))} to be a"):
        guard(**options)


@pytest.mark.parametrize("guard", [guard for guard in SAFE if guard.needs_source], ids=lambda g: type(g).__name__)
def test_guards_that_need_source_statistics_raise_without_them(guard):
    with pytest.raises(StatisticsError, match=type(guard).__name__):
        guard.start(GuardContext())
    with pytest.raises(StatisticsError, match=type(guard).__name__):
        regtta.Adapter(regressor.model_and_statistics()[0], regtta.BNAdapt(), guards=[guard])


FREE = [FiniteInputs(), MinBatchSize(), NonConstantInputs(), FiniteStep(), BoundedLoss(), BoundedDisplacement(),
        SubspaceEnergy(), OutputRange()]  # fmt: skip
COSTS = [(guard, 0, 0) for guard in FREE] + [
    (Gate(), 1, 2),
    (LabelShiftGuard(), 1, 1),
    (StationarityGuard(), 1, 1),
    (RepairableShift(), 1, 1),
    (HealthCheck(), 0, 2),
]


@pytest.mark.parametrize(("guard", "at_first", "moved"), COSTS, ids=lambda value: type(value).__name__)
def test_number_of_forward_passes_of_a_guard(guard, at_first, moved):
    """Forward passes in addition to the one that learns, for an unadapted and for an adapted model."""
    model, source = regressor.model_and_statistics()
    calls = []
    for has_moved, expected in ((False, at_first), (True, moved)):
        x = regressor.sample_inputs(64, torch.Generator().manual_seed(3), shift=4.0)
        calls.clear()

        def run(x, counts):
            calls.append(1)
            with torch.no_grad():
                return Forward(model[:6](x), model(x))

        guard.start(GuardContext(2, source, model[6])).before_step(IncomingBatch(x, run, run, moved=has_moved))
        assert len(calls) == expected


def test_guards_share_their_forward_passes():
    model, source = regressor.model_and_statistics()
    adapter = regtta.Adapter(model, regtta.SSA(k=8), source, guards=SAFE)
    counts = []
    handle = adapter.model[0].register_forward_hook(lambda *_: counts.append(1))
    for x in regressor.sample_inputs(64 * 12, torch.Generator().manual_seed(3), shift=3.0).split(64):
        counts.append(0)
        adapter.adapt(x)
    handle.remove()
    steps = "".join(map(str, counts)).split("0")[1:]
    assert steps[0] == "1"  # not learned from yet: one pass, which also gives the predictions
    assert max(map(len, steps)) == 3  # source model, current model, and the pass that learns
    plain = regtta.Adapter(model, regtta.SSA(k=8), source, guards=DEFAULT)
    counts.clear()
    plain.model[0].register_forward_hook(lambda *_: counts.append(1))
    plain.adapt(x)
    assert len(counts) == 1
