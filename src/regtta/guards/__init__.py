"""Guards, which exclude samples, reject batches or steps, and roll the model back; users may combine them freely."""

from regtta.guards.base import (
    Exclusion,
    Guard,
    GuardContext,
    GuardState,
    Keep,
    Rollback,
    Ruling,
    StepStats,
)
from regtta.guards.batch_guards import FiniteInputs, OutlierRows, SeveralSamples, VariedInputs
from regtta.guards.chain import GuardChain, IncomingBatch, Screened
from regtta.guards.gate import ALIGNED, NO_SHIFT, Gate
from regtta.guards.health import HealthCheck
from regtta.guards.runaway import OutputRange, SubspaceEnergy
from regtta.guards.step_guards import NOT_FINITE, BoundedDisplacement, BoundedLoss, FiniteStep
from regtta.guards.stream_guards import BeyondReweighting, SteadyStream

DEFAULT: tuple[Guard, ...] = (FiniteInputs(), OutlierRows(), SeveralSamples(), VariedInputs(), FiniteStep())

"""Default guards: exclude non-finite samples and extreme outliers; reject only batches that cannot be learned from."""

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

"""Guards for production: learn only from a significant shift that is not a label shift, in a stationary stream; roll
back to the last good model on divergence, and to the source model when the shift is over."""

__all__ = [
    "ALIGNED",
    "DEFAULT",
    "NOT_FINITE",
    "NO_SHIFT",
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
