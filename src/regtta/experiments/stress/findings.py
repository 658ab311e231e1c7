"""What the runs come to: means, worst cases, and whether what was asked is met. Numbers alone; no words."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from regtta.experiments.stress.arms import ADAPTING, COMPARED, GATED, PLAIN, SAFELY, SOURCE, WINDOW
from regtta.experiments.stress.results import Result, Results
from regtta.experiments.stress.streams import KINDS, REDRAWN

SAFE_FALL = -0.02  # the most that R² may fall below Source's under SAFE
STILL = 0.99  # the share of clean batches on which nothing may be learned
GATE_FALL = -0.005  # the most that R² may fall below Source's on the clean stream
FEW = 5  # batches within which the gate must have opened on a shift
WORTH = 0.02  # a gain that a share of can be told
KEPT, KEPT_AT, WHOLE_AT = 0.75, 8, 64  # of SSA's gain at a batch of 64, the share to keep at a batch of 8


@dataclass(frozen=True)
class Mean:
    """A mean over source models and parts.

    Attributes:
        value: NaN where there is no run, or one diverged.
        runs: behind it.
        lost: of these, how many diverged.
    """

    value: float
    runs: int
    lost: int


def mean_r2(runs: Sequence[Result]) -> Mean:
    """Of the online R²; what diverged is never averaged over."""
    lost = sum(run.lost for run in runs)
    value = fmean(run.r2 for run in runs) if runs and not lost else math.nan
    return Mean(value, len(runs), lost)


# --- streams -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamRow:
    """One method on one kind of stream: Source's mean, and that of each batch size and guards."""

    arm: str
    kind: str
    source: Mean
    means: dict[tuple[int, str], Mean]


def batch_sizes(results: Results) -> tuple[int, ...]:
    """Those of the comparison, the smallest first."""
    return tuple(sorted({run.batch_size for run in results.runs if run.guards in COMPARED and run.arm != SOURCE}))


def stream_rows(results: Results) -> tuple[StreamRow, ...]:
    """Every method on every kind that there are runs of."""
    rows = []
    for arm, kind in _pairs(results):
        means = {
            (size, guards): mean_r2(_sized(results.of(arm, kind, guards), size))
            for size in batch_sizes(results)
            for guards in COMPARED
        }
        rows.append(StreamRow(arm, kind, mean_r2(results.of(SOURCE, kind, PLAIN)), means))
    return tuple(rows)


def _sized(runs: Iterable[Result], batch_size: int) -> tuple[Result, ...]:
    return tuple(run for run in runs if run.batch_size == batch_size)


def _pairs(results: Results) -> list[tuple[str, str]]:
    there = {(run.arm, run.kind) for run in results.runs if run.guards in COMPARED}
    return [(arm, kind) for arm in ADAPTING for kind in KINDS if (arm, kind) in there]


# --- safety --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SafetyRow:
    """One method on one kind of stream: the worst run with each guards, by its difference to Source."""

    arm: str
    kind: str
    safe: Result | None
    plain: Result | None

    @property
    def met(self) -> bool:
        """Whether no run under SAFE falls too far."""
        return self.safe is not None and not self.safe.lost and self.safe.gain >= SAFE_FALL


def safety_rows(results: Results) -> tuple[SafetyRow, ...]:
    """Every method on every kind that there are runs of."""
    return tuple(
        SafetyRow(arm, kind, worst(results.of(arm, kind, SAFELY)), worst(results.of(arm, kind, PLAIN)))
        for arm, kind in _pairs(results)
    )


def worst(runs: Iterable[Result]) -> Result | None:
    """The run furthest below its source model; one that diverged is below all others."""
    return min(runs, key=lambda run: -math.inf if run.lost else run.gain, default=None)


# --- small batches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallRow:
    """One method at one batch size on shifted streams in any order, with plain guards.

    Attributes:
        arm: name of the method.
        batch_size: samples a step.
        r2: its mean.
        gain: mean over Source; NaN where a run diverged.
        kept: ``gain`` as a share of SSA's at a batch of 64; NaN where that is unknown or next to nothing.
        met: whether no more than a quarter of SSA's gain at a batch of 64 is lost (nothing, where it has none); None
            where nothing was asked.
    """

    arm: str
    batch_size: int
    r2: Mean
    gain: float
    kept: float
    met: bool | None


def small_rows(results: Results) -> tuple[SmallRow, ...]:
    """SSA, and SSA with a window, at every batch size that there are runs of."""
    whole = _mean_gain(_small(results, "ssa", WHOLE_AT))
    rows = []
    for arm in ("ssa", WINDOW):
        for size in batch_sizes(results):
            runs = _small(results, arm, size)
            if runs:
                gain = _mean_gain(runs)
                kept = gain / whole if whole >= WORTH else math.nan
                asked = size == KEPT_AT and not math.isnan(whole)
                met = gain >= whole - (1 - KEPT) * max(whole, 0.0)
                rows.append(SmallRow(arm, size, mean_r2(runs), gain, kept, met if asked else None))
    return tuple(rows)


def _small(results: Results, arm: str, size: int) -> tuple[Result, ...]:
    return _sized(results.of(arm, "iid", PLAIN), size)


def _mean_gain(runs: Sequence[Result]) -> float:
    return fmean(run.gain for run in runs) if runs and not any(run.lost for run in runs) else math.nan


# --- the gate ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateFindings:
    """What the gate did; each number is the worst over source models.

    Attributes:
        batches: of the clean stream.
        still: share of its batches on which nothing was learned.
        fall: R² less Source's on it.
        opened: by part, the batches until the first step; infinity where none was ever taken.
        source_models: how many.
    """

    batches: int
    still: float
    fall: float
    opened: dict[str, float]
    source_models: int


def gate_findings(results: Results) -> GateFindings | None:
    """Of the longest clean streams that there are; None where the gate was not tried."""
    tried = results.of("ssa", REDRAWN, GATED)
    longest = max((run.batches for run in tried), default=0)
    clean = [run for run in tried if run.batches == longest]
    if not clean:
        return None
    opened: dict[str, float] = {}
    for run in results.of("ssa", "iid", GATED):
        first = math.inf if run.first_learned is None else run.first_learned
        opened[run.part] = max(opened.get(run.part, 0), first)
    return GateFindings(
        longest,
        min(1 - run.learned / run.batches for run in clean),
        min(-math.inf if run.lost else run.gain for run in clean),
        opened,
        len({run.seed for run in clean}),
    )
