"""Findings of the stress benchmark and the curves behind them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from regtta.report.analysis import RunningScores
from regtta_bench.stress.results import Result, Results
from regtta_bench.stress.streams import KINDS, REDRAWN
from regtta_bench.stress.stress_settings import ADAPTING, COMPARED, GATED, PLAIN, SAFELY, SOURCE, WINDOW

SAFE_FALL = -0.02  # lowest permitted R² minus Source's under SAFE
STILL = 0.99  # least share of clean batches without an update
GATE_FALL = -0.005  # lowest permitted R² minus Source's on the clean stream
FEW = 5  # most batches until the gate opens on a shift
WORTH = 0.02  # least gain of which a share is meaningful
KEPT, KEPT_AT, WHOLE_AT = 0.75, 8, 64  # share of SSA's gain at batch size 64 to keep at batch size 8


@dataclass(frozen=True)
class Mean:
    """Mean over source models and parts.

    Attributes:
        value: the mean; NaN if there are no runs or one diverged.
        runs: number of runs.
        lost: number of diverged runs.
    """

    value: float
    runs: int
    lost: int


def mean_r2(runs: Sequence[Result]) -> Mean:
    """Return the mean online R² of ``runs``; NaN if one diverged."""
    lost = sum(run.lost for run in runs)
    value = fmean(run.r2 for run in runs) if runs and not lost else math.nan
    return Mean(value, len(runs), lost)


# --- streams -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamRow:
    """Mean R² of one method on one kind of stream, by batch size and guards, with that of Source."""

    arm: str
    kind: str
    source: Mean
    means: dict[tuple[int, str], Mean]


def batch_sizes(results: Results) -> tuple[int, ...]:
    """Return the batch sizes of the compared runs in ascending order."""
    return tuple(sorted({run.batch_size for run in results.runs if run.guards in COMPARED and run.arm != SOURCE}))


def stream_rows(results: Results) -> tuple[StreamRow, ...]:
    """Return a row for every method and kind of stream with runs."""
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
    """Worst runs of one method on one kind of stream, by difference to Source, with SAFE and plain guards."""

    arm: str
    kind: str
    safe: Result | None
    plain: Result | None

    @property
    def met(self) -> bool:
        """True if no run under SAFE falls more than permitted below Source."""
        return self.safe is not None and not self.safe.lost and self.safe.gain >= SAFE_FALL


def safety_rows(results: Results) -> tuple[SafetyRow, ...]:
    """Return a row for every method and kind of stream with runs."""
    return tuple(
        SafetyRow(arm, kind, worst(results.of(arm, kind, SAFELY)), worst(results.of(arm, kind, PLAIN)))
        for arm, kind in _pairs(results)
    )


def worst(runs: Iterable[Result]) -> Result | None:
    """Return the run with the lowest gain over its source model; diverged runs rank lowest."""
    return min(runs, key=lambda run: -math.inf if run.lost else run.gain, default=None)


# --- small batches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallRow:
    """Results of one method at one batch size on shuffled shifted streams, with plain guards.

    Attributes:
        arm: name of the method.
        batch_size: samples per step.
        r2: mean R².
        gain: mean gain over Source; NaN if a run diverged.
        kept: ``gain`` as a share of SSA's gain at batch size 64; NaN if that is unknown or negligible.
        met: True if at most a quarter of SSA's gain at batch size 64 is lost (none of it, if it is negative); None for
            batch sizes without a criterion.
    """

    arm: str
    batch_size: int
    r2: Mean
    gain: float
    kept: float
    met: bool | None


def small_rows(results: Results) -> tuple[SmallRow, ...]:
    """Return rows of SSA with and without a window, at every batch size with runs."""
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
    """Behaviour of the gate; each value is the worst over source models.

    Attributes:
        batches: number of batches in the clean stream.
        still: share of its batches without an update.
        fall: R² minus Source's on it.
        opened: number of batches until the first update, by part; infinity if there was none.
        source_models: number of source models.
    """

    batches: int
    still: float
    fall: float
    opened: dict[str, float]
    source_models: int


def gate_findings(results: Results) -> GateFindings | None:
    """Return the findings on the longest clean streams; None if there are no runs with the gate."""
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


SHOWN = (("Source", SOURCE, PLAIN), ("ssa, plain", "ssa", PLAIN), ("ssa, safe", "ssa", SAFELY))


def shown_batch_size(results: Results) -> int:
    """Return 64 if there are runs of that batch size, else the largest available one."""
    sizes = batch_sizes(results)
    return WHOLE_AT if WHOLE_AT in sizes else max(sizes, default=0)


def curves_of(results: Results) -> tuple[RunningScores, ...]:
    """Return the curves of each kind of stream that SSA was run on, averaged over source models and shifts."""
    size, curves = shown_batch_size(results), []
    for kind in KINDS:
        lines = {}
        for name, arm, guards in SHOWN:
            runs = [run for run in results.of(arm, kind, guards) if run.batch_size == size or arm == SOURCE]
            slices = {len(run.slices) for run in runs}
            if len(slices) == 1:
                lines[name] = np.array([run.slices for run in runs]).mean(axis=0)
        if len(lines) > 1:
            curves.append(RunningScores(kind, lines))
    return tuple(curves)
