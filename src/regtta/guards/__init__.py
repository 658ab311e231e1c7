"""What refuses a batch or a step, and what undoes one. A guard is one class here; users combine them as they like."""

from regtta.guards.base import Arrival, Guard, Keep, Outcome, Post, Rollback, Ruling, Watch
from regtta.guards.batches import FiniteInputs, SeveralSamples, VariedInputs
from regtta.guards.gate import Gate
from regtta.guards.health import HealthCheck
from regtta.guards.panel import Panel
from regtta.guards.runaway import OutputRange, SubspaceEnergy
from regtta.guards.steps import BoundedDisplacement, BoundedLoss, FiniteStep
from regtta.guards.streams import BeyondReweighting, SteadyStream

DEFAULT: tuple[Guard, ...] = (FiniteInputs(), SeveralSamples(), VariedInputs(), FiniteStep())
"""Refuses what cannot be learned from, and nothing else."""

SAFE: tuple[Guard, ...] = (
    FiniteInputs(),
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
    "Arrival",
    "BeyondReweighting",
    "BoundedDisplacement",
    "BoundedLoss",
    "FiniteInputs",
    "FiniteStep",
    "Gate",
    "Guard",
    "HealthCheck",
    "Keep",
    "Outcome",
    "OutputRange",
    "Panel",
    "Post",
    "Rollback",
    "Ruling",
    "SeveralSamples",
    "SteadyStream",
    "SubspaceEnergy",
    "VariedInputs",
    "Watch",
]
