"""Guards against label shift and non-stationary streams, in which alignment would change correct predictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from regtta.errors import OptionError
from regtta.guards.base import Guard, GuardContext, GuardState, Rollback
from regtta.guards.chain import IncomingBatch
from regtta.options import check_fraction, check_non_negative, check_positive_int
from regtta.persistence import require_count, require_mapping, require_tensor
from regtta.statistics import EwmaMoments, Whitening, is_nonstationary, min_reweighting_divergence


@dataclass(frozen=True)
class LabelShiftGuard(Guard):
    """Guard that permits learning only from a shift that cannot be a reweighting of the source samples.

    A label shift is a reweighting of the source distribution. A reweighting of χ² divergence c moves the whitened mean
    by at most √c, so a larger shift is not (only) a label shift
    (:func:`regtta.statistics.min_reweighting_divergence`). When the required divergence falls to a quarter of
    ``limit``, the shift is over and the model is rolled back to the source.

    Args:
        limit: largest χ² divergence attributed to a label shift. 9 is the divergence of a stream that contains only one
            tenth of the source's label distribution.
        memory: time constant of the moments, in samples.
    """

    limit: float = 9.0
    memory: int = 128

    serialized_name: ClassVar[str] = "BeyondReweighting"
    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_non_negative("limit", self.limit)
        check_positive_int("memory", self.memory)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _LabelShiftState(self, context.whitening("LabelShiftGuard"))


class _LabelShiftState(GuardState):
    def __init__(self, guard: LabelShiftGuard, whitening: Whitening) -> None:
        self.guard = guard
        self.whitening = whitening
        self.recent = EwmaMoments(guard.memory, products=False)

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Compute the required reweighting from the features of the source model."""
        self.recent.update(batch.coordinates_float64(self.whitening, batch.source))
        needed = min_reweighting_divergence(self.recent) if self.recent.count else 0.0
        if needed > self.guard.limit:
            return None
        reason = "another mix of the source's own samples explains the shift"
        return Rollback(reason, "source") if batch.moved and needed <= self.guard.limit / 4 else reason

    def state_dict(self) -> dict[str, Any]:
        return self.recent.state_dict()

    def validate_state(self, state: object, path: str) -> None:
        self.recent.validate_state(state, path, self.whitening.dimensions)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.recent.load_state_dict(state)


@dataclass(frozen=True)
class StationarityGuard(Guard):
    """Guard that permits learning only while the stream is stationary.

    In a stream that is sorted by label or arrives in bursts, the labels of each batch are not representative, and
    aligning it with the whole source is wrong. The features of the source model then differ significantly between
    blocks of the stream. Along the outputs, any significant difference counts; along other directions, small
    differences are tolerated, since they may be a slow shift. If the stream turns out to be non-stationary, the model
    is rolled back to the source. Runs of one label that exceed the memory cannot be distinguished from a shift.

    Args:
        memory: number of recent samples to test, or four batches if that is more.
        patience: number of samples for which the stream must have been stationary before learning begins.
        block: number of samples per block.
        level: significance level per batch; lower than that of :class:`Gate`, since a rejection discards what was
            learned.
        tolerance: largest share of the variance between blocks, except along the outputs.
    """

    memory: int = 1024
    patience: int = 512
    block: int = 32
    level: float = 1e-4
    tolerance: float = 0.03

    serialized_name: ClassVar[str] = "SteadyStream"
    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive_int("memory", self.memory)
        check_positive_int("patience", self.patience)
        check_positive_int("block", self.block)
        if self.block < 8 or self.memory < 2 * self.block:
            raise OptionError(
                "Expected block to be at least 8 and memory to be at least two blocks, found "
                f"block={self.block} and memory={self.memory}. Increase them."
            )
        check_fraction("level", self.level)
        check_non_negative("tolerance", self.tolerance)

    def start(self, context: GuardContext) -> GuardState:
        """Return an empty state."""
        return _StationarityState(self, context.whitening("StationarityGuard"))


class _StationarityState(GuardState):
    def __init__(self, guard: StationarityGuard, whitening: Whitening) -> None:
        self.guard = guard
        self.whitening = whitening
        self.seen = whitening.map.new_empty(0, whitening.dimensions)
        self.steady_for = 0

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Store the features of the source model and compare blocks of the stream."""
        seen = batch.coordinates(self.whitening, batch.source)
        seen = seen[seen.isfinite().all(dim=1)]
        longest = max(self.guard.memory, 4 * len(seen))
        self.seen = torch.cat([self.seen, seen])[-longest:]
        unsteady = self._unsteady() if len(self.seen) >= 2 * self.guard.block else ""
        self.steady_for = 0 if unsteady else self.steady_for + len(seen)
        if unsteady:
            reason = f"the stream is not steady: {unsteady} move from block to block"
            return Rollback(reason, "source") if batch.moved else reason
        if self.steady_for < self.guard.patience:
            return f"steady for fewer than {self.guard.patience} samples"
        return None

    def _unsteady(self) -> str:
        block, level = self.guard.block, self.guard.level
        if is_nonstationary(self.seen @ self.whitening.outputs, block, level):
            return "outputs"
        return "features" if is_nonstationary(self.seen, block, level, self.guard.tolerance) else ""

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen.clone(), "steady_for": self.steady_for}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("seen", "steady_for"))
        require_tensor(f"{path}/seen", found["seen"], (None, self.whitening.dimensions), self.whitening.map.dtype)
        require_count(f"{path}/steady_for", found["steady_for"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"].to(self.seen).clone()
        self.steady_for = state["steady_for"]
