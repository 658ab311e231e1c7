"""What refuses a batch or a step, and what undoes one. A guard is one class here; users combine them as they like."""

from regtta.guards.base import (
    Exclusion,
    Guard,
    GuardContext,
    GuardState,
    IncomingBatch,
    Keep,
    Rollback,
    Ruling,
    StepStats,
)
from regtta.guards.batches import FiniteInputs, SeveralSamples, VariedInputs
from regtta.guards.chain import GuardChain, Screened
from regtta.guards.gate import Gate
from regtta.guards.health import HealthCheck
from regtta.guards.outlier_rows import OutlierRows
from regtta.guards.runaway import OutputRange, SubspaceEnergy
from regtta.guards.steps import BoundedDisplacement, BoundedLoss, FiniteStep
from regtta.guards.streams import BeyondReweighting, SteadyStream

DEFAULT: tuple[Guard, ...] = (FiniteInputs(), OutlierRows(), SeveralSamples(), VariedInputs(), FiniteStep())
"""Leaves out samples that are not finite or absurdly far from the others; refuses only what cannot be learned from."""

SAFE: tuple[Guard, ...] = (
    FiniteInputs(),
    OutlierRows(features=True),
    SeveralSamples(16),
    VariedInputs(),
    Gate(),
    BeyondReweighting(),
    SteadyStream(),
    FiniteStep(),
    BoundedLoss(),
    BoundedDisplacement(),
    SubspaceEnergy(),
    OutputRange(),
    HealthCheck(),
)
"""For production: learns only from a shift that is there, that labels alone do not explain, in a steady stream;
returns to the last good model when something runs away, and to the source model when the shift is over."""

__all__ = [
    "DEFAULT",
    "SAFE",
    "BeyondReweighting",
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
    "Keep",
    "OutlierRows",
    "OutputRange",
    "Rollback",
    "Ruling",
    "Screened",
    "SeveralSamples",
    "SteadyStream",
    "StepStats",
    "SubspaceEnergy",
    "VariedInputs",
]
