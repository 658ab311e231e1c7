"""Guards against label shift and non-stationary streams, in which alignment would change correct predictions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.guards.base import Guard, GuardContext, GuardState, Rollback
from regtta.guards.chain import IncomingBatch
from regtta.options import check_fraction, check_non_negative, check_positive_int
from regtta.persistence import require_count, require_mapping, require_tensor
from regtta.statistics import EwmaMoments, Whitening, is_nonstationary, min_reweighting_divergence

# Two streams of one tenth of the source's labels each have whitened means of norm 3 at most (χ² divergence 9), which
# differ by 6 at most. A change whose square exceeds 36 is therefore more than a change of the labels.
SUDDEN = 36.0
DOUBT = 0.05  # significance level of a non-stationarity that forbids a shorter wait
SHORTEST_WAIT = 128  # samples: four blocks of the default size, so that a sorted stream shows
MIN_LATEST = 16  # samples in which a sudden change is sought, if a batch has fewer
EVIDENCE_SAMPLES = 128  # most recent samples from which the size of the shift is computed


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

    The larger the shift, the shorter the wait: ``patience · min(1, 36 / c)`` samples and at least 128, for a shift of
    reweighting divergence c (see :class:`LabelShiftGuard`), unless the features differ between blocks at a level of
    0.05. A sudden change starts a new stream: if the means of the features change by more than 36 in squared norm,
    which no change of the labels explains, earlier samples are forgotten, and an adapted model is rolled back to the
    source.

    Args:
        memory: number of recent samples to test, or four batches if that is more.
        patience: number of samples for which the stream must have been stationary before learning begins, at most.
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
        if self._forget_before_sudden_change(len(seen)) and batch.moved:
            return Rollback("the stream changed suddenly", "source")
        unsteady = self._unsteady() if len(self.seen) >= 2 * self.guard.block else ""
        self.steady_for = 0 if unsteady else self.steady_for + len(seen)
        if unsteady:
            reason = f"the stream is not steady: {unsteady} move from block to block"
            return Rollback(reason, "source") if batch.moved else reason
        wait = self.guard.patience if self.steady_for >= self.guard.patience else self._wait()
        return f"steady for fewer than {wait} samples" if self.steady_for < wait else None

    def _wait(self) -> int:
        """Return for how many samples the stream must have been stationary, given the size of the shift."""
        recent = self.seen[-EVIDENCE_SAMPLES:].double()
        if len(recent) < 2:
            return self.guard.patience
        divergence = float((recent.mean(dim=0) ** 2).sum() - recent.var(dim=0).sum() / len(recent))
        if not divergence > SUDDEN:
            return self.guard.patience
        wait = min(self.guard.patience, max(SHORTEST_WAIT, math.ceil(self.guard.patience * SUDDEN / divergence)))
        in_doubt = self.steady_for >= wait and is_nonstationary(self.seen, self.guard.block, DOUBT)
        return self.guard.patience if in_doubt else wait

    def _forget_before_sudden_change(self, count: int) -> bool:
        """Forget the samples before a sudden change, if there is one in the latest ``count`` samples, at least 16."""
        latest = max(count, MIN_LATEST)
        change = sudden_change(self.seen, latest) if len(self.seen) >= latest + self.guard.block else None
        if change is None:
            return False
        self.seen = self.seen[change:].clone()
        self.steady_for = len(self.seen) - count
        return True

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


def sudden_change(values: Tensor, latest: int) -> int | None:
    """Return the first row after a sudden change of whitened samples (N, K), or ``None`` if there was none.

    Compares the means of the latest and of the earlier rows. The squared norm of their difference, minus its sampling
    noise, must exceed 36, and 36 times the variance along the difference in at least one of the two parts: in a mixture
    of two domains, both vary between them. The change is the best split along the difference.

    Args:
        values: rows in order of arrival.
        latest: number of rows at the end to compare with the others.

    Example:
        >>> rows = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
        >>> sudden_change(rows, 32)
        >>> sudden_change(torch.cat([rows, rows[:24] + 5]), 32)
        96
    """
    before, after = values[:-latest], values[-latest:]
    gap = after.mean(dim=0) - before.mean(dim=0)
    if not float(gap.dot(gap)) > SUDDEN:  # as almost always
        return None
    values, before, after = values.double(), before.double(), after.double()
    gap = after.mean(dim=0) - before.mean(dim=0)
    noise = after.var(dim=0).sum() / len(after) + before.var(dim=0).sum() / len(before)
    squared = float(gap.dot(gap))
    if not squared - float(noise) > SUDDEN:
        return None
    along = values @ gap / math.sqrt(squared)
    variance = min(float(along[:-latest].var()), float(along[-latest:].var()))
    if not squared - float(noise) > SUDDEN * variance:
        return None
    counts = torch.arange(1, len(along), dtype=torch.float64, device=along.device)
    sums, total = along.cumsum(0)[:-1], along.sum()
    between = (sums / counts - (total - sums) / (len(along) - counts)) ** 2 * counts * (len(along) - counts)
    return int(between.argmax()) + 1
