"""Guards against divergence: features that leave the source subspace, and outputs that leave their range."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regtta.guards.base import Guard, GuardContext, GuardState, Rollback, StepStats
from regtta.options import check_positive, check_positive_int
from regtta.persistence import require_count, require_mapping, require_tensor
from regtta.statistics import EXPLAINED_VARIANCE, SourceStatistics


@dataclass(frozen=True)
class SubspaceEnergy(Guard):
    """Guard that rolls back to the last good model when features leave the source subspace.

    Computes the mean energy outside the directions that carry 99 % of the source variance. It must not exceed
    ``factor`` times a baseline, which is the maximum of the source's own energy outside them, 1 % of the total source
    variance, and the mean over the first steps of the stream.

    Args:
        factor: largest multiple of the baseline.
        first: number of steps from which the baseline of the stream is computed.
    """

    factor: float = 10.0
    first: int = 4

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("factor", self.factor)
        check_positive_int("first", self.first)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _EnergyState(self, *context.require("SubspaceEnergy"))


@dataclass(frozen=True)
class OutputRange(Guard):
    """Guard that rolls back to the last good model when outputs diverge from the source and from the first steps.

    Args:
        distance: largest distance of the mean to the nearer of the two baselines (source and first steps), in units of
            the larger of their standard deviations.
        ratio: largest ratio of the variance to the larger of the two baseline variances.
        first: number of steps from which the baseline of the stream is computed.
    """

    distance: float = 5.0
    ratio: float = 10.0
    first: int = 4

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("distance", self.distance)
        check_positive("ratio", self.ratio)
        check_positive_int("first", self.first)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _RangeState(self, *context.require("OutputRange"))


class _FirstSteps(GuardState):
    """Abstract state that compares each step with the source and with the mean over the first steps of the stream."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.steps = 0
        self.began: Tensor | None = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the measured quantity."""

    @abstractmethod
    def measure(self, features: Tensor) -> Tensor:
        """Return the measured quantity for features ``(B, D)``."""

    @abstractmethod
    def diverged(self, now: Tensor, began: Tensor) -> str | None:
        """Return the reason if ``now`` is too far from the source and from ``began``, else ``None``."""

    def after_step(self, stats: StepStats) -> Rollback | None:
        """Compare the forward pass that was learned from with the baselines; the first steps update the baseline."""
        if stats.forward is None or stats.forward.features.shape[-1] == 0:
            return None
        now = self.measure(stats.forward.flat_features.detach().double()).cpu()
        if not bool(now.isfinite().all()):
            return Rollback("features are not finite", "good")
        if self.steps < self.first:
            self.began = now if self.began is None else self.began + (now - self.began) / (self.steps + 1)
            self.steps += 1
        reason = None if self.began is None else self.diverged(now, self.began)
        return None if reason is None else Rollback(reason, "good")

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "began": torch.empty(0) if self.began is None else self.began.clone()}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("steps", "began"))
        if require_count(f"{path}/steps", found["steps"], maximum=self.first):
            require_tensor(f"{path}/began", found["began"], self.shape, torch.float64)
        else:
            require_tensor(f"{path}/began", found["began"], (0,), torch.float32)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.began = state["began"].double().cpu().clone() if self.steps else None


class _EnergyState(_FirstSteps):
    def __init__(self, guard: SubspaceEnergy, source: SourceStatistics, head: nn.Linear) -> None:
        super().__init__(guard.first)
        self.factor = guard.factor
        subspace = source.leading_subspace()
        self.mean, self.basis = (values.to(head.weight.device) for values in (subspace.mean, subspace.basis))
        total = float(source.variances.sum())
        self.usual = max(total - float(subspace.variances.sum()), total * (1 - EXPLAINED_VARIANCE))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the energy, a scalar."""
        return ()

    def measure(self, features: Tensor) -> Tensor:
        """Return the mean energy outside the subspace."""
        centred = features - self.mean
        return ((centred**2).sum(dim=1) - ((centred @ self.basis) ** 2).sum(dim=1)).mean().clamp_min(0)

    def diverged(self, now: Tensor, began: Tensor) -> str | None:
        if float(now) <= self.factor * max(self.usual, float(began)):
            return None
        return f"features left the source's subspace: more than {self.factor:g} times the energy outside it"


class _RangeState(_FirstSteps):
    def __init__(self, guard: OutputRange, source: SourceStatistics, head: nn.Linear) -> None:
        super().__init__(guard.first)
        self.guard = guard
        self.weight = head.weight.detach().double().clone()
        self.usual = torch.stack(source.output_moments(self.weight))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape ``(2, O)`` of means and variances."""
        return tuple(self.usual.shape)

    def measure(self, features: Tensor) -> Tensor:
        """Return mean and variance ``(2, O)`` of the outputs of the source head, without its bias."""
        outputs = features @ self.weight.T
        spread = outputs.var(dim=0) if len(outputs) > 1 else torch.zeros_like(outputs[0])
        return torch.stack([outputs.mean(dim=0), spread])

    def diverged(self, now: Tensor, began: Tensor) -> str | None:
        widest = torch.maximum(self.usual[1], began[1]).clamp_min(1e-300)
        if bool((now[1] > self.guard.ratio * widest).any()):
            return f"outputs run away: more than {self.guard.ratio:g} times the variance they began with"
        nearest = torch.minimum((now[0] - self.usual[0]).abs(), (now[0] - began[0]).abs())
        if bool((nearest > self.guard.distance * widest.sqrt()).any()):
            return f"outputs run away: their mean is more than {self.guard.distance:g} standard deviations off"
        return None
