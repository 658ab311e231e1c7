"""Guards against streams whose labels move: aligning features would take the labels' own movement away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from regtta.errors import OptionError
from regtta.guards.base import Guard, GuardContext, GuardState, IncomingBatch, Rollback
from regtta.options import check_count, check_not_negative, check_share
from regtta.recent import RecentMoments
from regtta.shift_tests import reweighting_needed, unsteady
from regtta.state_validation import require_count, require_mapping, require_tensor
from regtta.whitening import Whitening


@dataclass(frozen=True)
class BeyondReweighting(Guard):
    """Learns only from a shift that no other mix of the source's own samples explains.

    A label shift is a reweighting of the source. One of χ² divergence c moves the whitened mean by √c at most, so
    what moves it further is not (only) a label shift. See :func:`regtta.shift_tests.reweighting_needed`. Once the
    shift is well within it again, what was learned belongs to a shift that is over, and is taken back.

    Args:
        limit: the divergence that a change of the mix may have. 9 is that of a stream which holds one in ten of the
            source's labels and nothing else. Returns to the source model are at a quarter of it.
        memory: samples to look back on.
    """

    limit: float = 9.0
    memory: int = 128

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_not_negative("limit", self.limit)
        check_count("memory", self.memory)

    def start(self, context: GuardContext) -> GuardState:
        """Return a state that has seen nothing yet."""
        return _MixState(self, context.whitening("BeyondReweighting"))


class _MixState(GuardState):
    def __init__(self, guard: BeyondReweighting, whitening: Whitening) -> None:
        self.guard = guard
        self.whitening = whitening
        self.recent = RecentMoments(guard.memory, products=False)

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Look at the batch as the source model sees it."""
        self.recent.add(batch.coordinates_here(self.whitening, batch.source))
        needed = reweighting_needed(self.recent) if self.recent.count else 0.0
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
class SteadyStream(Guard):
    """Learns only while samples could have come in any order.

    In a stream sorted by label, or one that comes in bursts, each batch is one-sided, and aligning it with the whole
    source is wrong. There the source model's features differ between blocks of the stream more than chance explains.
    Along the output any such difference counts; elsewhere a small one may be a shift that comes on slowly. What was
    learned before a stream turned out not to be steady is taken back. Runs of one label longer than the memory look
    steady, and cannot be told from a shift.

    Args:
        memory: samples to look back on, four batches where that is more.
        patience: samples that a stream must have been steady for before anything is learned.
        block: samples a block.
        level: probability of a false alarm a batch; lower than the gate's, since an alarm takes back what was learned.
        tolerance: share of the variance that may lie between blocks, the outputs' own directions apart.
    """

    memory: int = 1024
    patience: int = 512
    block: int = 32
    level: float = 1e-4
    tolerance: float = 0.03

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate fields."""
        check_count("memory", self.memory)
        check_count("patience", self.patience)
        check_count("block", self.block)
        if self.block < 8 or self.memory < 2 * self.block:
            raise OptionError(
                "Expected blocks of 8 samples or more, and two of them at least within the memory, found "
                f"block={self.block} and memory={self.memory}."
            )
        check_share("level", self.level)
        check_not_negative("tolerance", self.tolerance)

    def start(self, context: GuardContext) -> GuardState:
        """Return a state that has seen nothing yet."""
        return _SteadyState(self, context.whitening("SteadyStream"))


class _SteadyState(GuardState):
    def __init__(self, guard: SteadyStream, whitening: Whitening) -> None:
        self.guard = guard
        self.whitening = whitening
        self.seen = whitening.map.new_empty(0, whitening.dimensions)
        self.steady_for = 0

    def before_step(self, batch: IncomingBatch) -> str | Rollback | None:
        """Remember the batch as the source model sees it, and compare blocks of the stream."""
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
        if unsteady(self.seen @ self.whitening.outputs, block, level):
            return "outputs"
        return "features" if unsteady(self.seen, block, level, self.guard.tolerance) else ""

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen.clone(), "steady_for": self.steady_for}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("seen", "steady_for"))
        require_tensor(f"{path}/seen", found["seen"], (None, self.whitening.dimensions), self.whitening.map.dtype)
        require_count(f"{path}/steady_for", found["steady_for"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"].to(self.seen).clone()
        self.steady_for = state["steady_for"]
