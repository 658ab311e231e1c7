"""Guards against bad steps: non-finite values, an exploding loss, and a large displacement of the parameters."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from regtta.guards.base import Guard, GuardContext, GuardState, StepStats
from regtta.options import check_positive, check_positive_int
from regtta.persistence import require_mapping, require_number, require_sequence

NOT_FINITE = "outputs, weights or running statistics are not finite"


@dataclass(frozen=True)
class FiniteStep(Guard):
    """Guard that rejects steps with a non-finite loss, gradient, output, weight or running statistic."""

    def after_step(self, stats: StepStats) -> str | None:
        """Reject the step, naming the first quantity that is not finite."""
        for name, value in {"loss": stats.loss, "gradient": stats.gradient_norm}.items():
            if value is not None and not math.isfinite(value):
                return f"the {name} is not finite"
        return None if stats.finite else NOT_FINITE


@dataclass(frozen=True)
class BoundedLoss(Guard):
    """Guard that rejects steps whose loss is far above the recent losses of the stream.

    Args:
        factor: largest multiple of the median of recent losses.
        memory: number of recent losses.
    """

    factor: float = 10.0
    memory: int = 32

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("factor", self.factor)
        check_positive_int("memory", self.memory)

    def start(self, context: GuardContext) -> GuardState:  # noqa: ARG002 - does not need the context
        """Return an empty state."""
        return _LossState(self)


class _LossState(GuardState):
    def __init__(self, guard: BoundedLoss) -> None:
        self.guard = guard
        self.losses: deque[float] = deque(maxlen=guard.memory)

    def after_step(self, stats: StepStats) -> str | None:
        """Compare with the median; losses of rejected steps are stored too, so that a new level is accepted in time."""
        loss = stats.loss
        if loss is None or not math.isfinite(loss):
            return None
        typical = median(self.losses) if self.losses else None
        self.losses.append(loss)
        if typical is not None and typical > 0 and loss > self.guard.factor * typical:
            return f"the loss exploded: more than {self.guard.factor:g} times the median of late"
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses)}

    def validate_state(self, state: object, path: str) -> None:
        losses = require_mapping(path, state, ("losses",))["losses"]
        for number, loss in enumerate(require_sequence(f"{path}/losses", losses, maximum=self.guard.memory)):
            require_number(f"{path}/losses/{number}", loss)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.losses = deque(state["losses"], maxlen=self.guard.memory)


@dataclass(frozen=True)
class BoundedDisplacement(Guard):
    """Guard that rejects steps that move the parameters too far from their initial values.

    Args:
        limit: largest relative displacement ``‖θ − θ₀‖ / ‖θ₀‖``.
    """

    limit: float = 0.5

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("limit", self.limit)

    def after_step(self, stats: StepStats) -> str | None:
        """Reject the step if the displacement exceeds the limit."""
        if stats.displacement <= self.limit:
            return None
        return f"the parameters would be further than {self.limit:g} from where they began"
