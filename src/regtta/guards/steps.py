"""Guards against steps that go wrong: what is not finite, a loss that explodes, weights that wander off."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from regtta.guards.base import Guard, GuardContext, GuardState, StepStats
from regtta.options import check_count, check_positive
from regtta.state_validation import require_mapping, require_number, require_sequence

NOT_FINITE = "outputs, weights or running statistics are not finite"


@dataclass(frozen=True)
class FiniteStep(Guard):
    """Refuses a step that is not finite in its loss, its gradient, its outputs or in what it leaves behind."""

    def after_step(self, stats: StepStats) -> str | None:
        """Name the first that is not."""
        for name, value in {"loss": stats.loss, "gradient": stats.gradient_norm}.items():
            if value is not None and not math.isfinite(value):
                return f"the {name} is not finite"
        return None if stats.finite else NOT_FINITE


@dataclass(frozen=True)
class BoundedLoss(Guard):
    """Refuses a step whose loss is far above what the stream's losses have been.

    Args:
        factor: how many times the median of the losses of late is too much.
        memory: how many losses that is.
    """

    factor: float = 10.0
    memory: int = 32

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("factor", self.factor)
        check_count("memory", self.memory)

    def start(self, context: GuardContext) -> GuardState:  # noqa: ARG002 - needs nothing of the stream's beginning
        """Return a state with an empty memory."""
        return _LossState(self)


class _LossState(GuardState):
    def __init__(self, guard: BoundedLoss) -> None:
        self.guard = guard
        self.losses: deque[float] = deque(maxlen=guard.memory)

    def after_step(self, stats: StepStats) -> str | None:
        """Compare with the median; every finite loss is remembered, so that a new level is accepted in time."""
        loss = stats.loss
        if loss is None or not math.isfinite(loss):
            return None
        usual = median(self.losses) if self.losses else None
        self.losses.append(loss)
        if usual is not None and usual > 0 and loss > self.guard.factor * usual:
            return f"the loss exploded: more than {self.guard.factor:g} times the median of late"
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses)}

    def validate_state(self, state: object, path: str) -> None:
        losses = require_mapping(path, state, ("losses",))["losses"]
        for number, loss in enumerate(require_sequence(f"{path}/losses", losses, most=self.guard.memory)):
            require_number(f"{path}/losses/{number}", loss)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.losses = deque(state["losses"], maxlen=self.guard.memory)


@dataclass(frozen=True)
class BoundedDisplacement(Guard):
    """Refuses a step that takes the parameters too far from where the stream began.

    Args:
        limit: of ``‖θ − θ₀‖ / ‖θ₀‖``.
    """

    limit: float = 0.5

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("limit", self.limit)

    def after_step(self, stats: StepStats) -> str | None:
        """Compare with the limit."""
        if stats.displacement <= self.limit:
            return None
        return f"the parameters would be further than {self.limit:g} from where they began"
