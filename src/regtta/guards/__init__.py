"""Guards, which exclude samples, reject batches or steps, and roll the model back; users may combine them freely."""

from regtta.guards.base import (
    Exclusion,
    Guard,
    GuardContext,
    GuardState,
    MarkGood,
    Rollback,
    Ruling,
    StepStats,
)
from regtta.guards.batch_guards import FiniteInputs, MinBatchSize, NonConstantInputs, OutlierRows
from regtta.guards.chain import GuardChain, IncomingBatch, Screened
from regtta.guards.divergence import OutputRange, SubspaceEnergy
from regtta.guards.gate import ALIGNED_WITH_SOURCE, NO_SHIFT, Gate
from regtta.guards.health import HealthCheck
from regtta.guards.repairable_shift import OTHER_POPULATION, RepairableShift
from regtta.guards.step_guards import NOT_FINITE, BoundedDisplacement, BoundedLoss, FiniteStep
from regtta.guards.stream_guards import LabelShiftGuard, StationarityGuard

DEFAULT: tuple[Guard, ...] = (FiniteInputs(), OutlierRows(), MinBatchSize(), NonConstantInputs(), FiniteStep())

"""Default guards: exclude non-finite samples and extreme outliers; reject only batches that cannot be learned from."""

SAFE: tuple[Guard, ...] = (
    FiniteInputs(),
    OutlierRows(features=True),
    MinBatchSize(16),
    NonConstantInputs(),
    Gate(),
    RepairableShift(),
    LabelShiftGuard(),
    StationarityGuard(),
    FiniteStep(),
    BoundedLoss(),
    BoundedDisplacement(),
    SubspaceEnergy(),
    OutputRange(),
    HealthCheck(),
)

"""Guards for production: learn only from a significant shift that is not a label shift and that adaptation repairs,
in a stationary stream; roll back to the last good model on divergence, and to the source model when the shift is
over."""

__all__ = [
    "ALIGNED_WITH_SOURCE",
    "DEFAULT",
    "NOT_FINITE",
    "NO_SHIFT",
    "OTHER_POPULATION",
    "SAFE",
    "BoundedDisplacement",
    "BoundedLoss",
    "Exclusion",
    "FiniteInputs",
    "FiniteStep",
    "Gate",
    "Guard",
    "GuardChain",
    "GuardContext",
    "GuardState",
    "HealthCheck",
    "IncomingBatch",
    "LabelShiftGuard",
    "MarkGood",
    "MinBatchSize",
    "NonConstantInputs",
    "OutlierRows",
    "OutputRange",
    "RepairableShift",
    "Rollback",
    "Ruling",
    "Screened",
    "StationarityGuard",
    "StepStats",
    "SubspaceEnergy",
]
