"""Guard that checks periodically whether adaptation reduces the misalignment of the features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from regtta.guards.base import Guard, GuardContext, GuardState, MarkGood, Rollback, StepStats
from regtta.guards.chain import IncomingBatch
from regtta.options import check_positive_int
from regtta.persistence import require_count, require_mapping
from regtta.statistics import EwmaMoments, Whitening


@dataclass(frozen=True)
class HealthCheck(Guard):
    """Guard that rolls back to the last good model when adaptation stops helping.

    Compares the misalignment ``Σ_d m_d² + (s_d − 1)²`` of recent whitened means and standard deviations between adapted
    model and source model on the same batches. The check passes if the misalignment of the adapted model is not larger,
    and marks the model as good. A failed check rolls back to the last good model, a second consecutive failure to the
    source model.

    Args:
        every: number of steps between checks.
        memory: time constant of the moments, in samples.
    """

    every: int = 8
    memory: int = 128

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive_int("every", self.every)
        check_positive_int("memory", self.memory)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _HealthState(self, context.whitening("HealthCheck"))


class _HealthState(GuardState):
    def __init__(self, guard: HealthCheck, whitening: Whitening) -> None:
        self.guard = guard
        self.whitening = whitening
        self.at_source = EwmaMoments(guard.memory, products=False)
        self.at_current = EwmaMoments(guard.memory, products=False)
        self.steps = self.failures = 0

    def before_step(self, batch: IncomingBatch) -> None:
        """Update the moments of both models, if the current model differs from the source model."""
        if batch.moved:
            self.at_source.update(batch.coordinates_float64(self.whitening, batch.source))
            self.at_current.update(batch.coordinates_float64(self.whitening, batch.current))

    def after_step(self, stats: StepStats) -> MarkGood | Rollback | None:  # noqa: ARG002 - independent of the step
        """Compare the misalignment of both models every ``every`` steps."""
        self.steps += 1
        if self.steps % self.guard.every or not self.at_current.count:
            return None
        if misalignment(self.at_current) <= misalignment(self.at_source):
            self.failures = 0
            return MarkGood()
        self.failures += 1
        return Rollback("adapting has not brought the features nearer", "good" if self.failures == 1 else "source")

    def on_rollback(self) -> None:
        """Discard the moments of both models."""
        self.at_source.reset()
        self.at_current.reset()

    def state_dict(self) -> dict[str, Any]:
        return {
            "source": self.at_source.state_dict(),
            "current": self.at_current.state_dict(),
            "steps": self.steps,
            "failures": self.failures,
        }

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("source", "current", "steps", "failures"))
        self.at_source.validate_state(found["source"], f"{path}/source", self.whitening.dimensions)
        self.at_current.validate_state(found["current"], f"{path}/current", self.whitening.dimensions)
        require_count(f"{path}/steps", found["steps"])
        require_count(f"{path}/failures", found["failures"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.at_source.load_state_dict(state["source"])
        self.at_current.load_state_dict(state["current"])
        self.steps, self.failures = state["steps"], state["failures"]


def misalignment(recent: EwmaMoments) -> float:
    """Return the squared 2-Wasserstein distance of whitened moments to the source: ``Σ_d m_d² + (s_d − 1)²``.

    Example:
        >>> import torch
        >>> recent = EwmaMoments(100)
        >>> recent.update(torch.tensor([[1.0], [3.0]]))
        >>> misalignment(recent)
        4.0
    """
    return float((recent.mean**2 + (recent.variance.sqrt() - 1) ** 2).sum())
