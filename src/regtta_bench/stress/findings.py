"""Findings of the stress benchmark and the curves behind them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from regtta.report.analysis import RunningScores
from regtta_bench.stress.results import StressResult, StressResults
from regtta_bench.stress.streams import REDRAWN, STREAM_KINDS
from regtta_bench.stress.stress_settings import (
    ADAPTATION_METHODS,
    COMPARED_GUARDS,
    GATE_GUARDS,
    PLAIN_GUARDS,
    SAFE_GUARDS,
    SOURCE_METHOD,
    SSA_WINDOW,
)

MIN_SAFE_GAIN = -0.02  # lowest permitted R² minus Source's under SAFE
MIN_STILL_SHARE = 0.99  # minimum share of clean batches without an update
MIN_GATE_GAIN = -0.005  # lowest permitted R² minus Source's on the clean stream
MAX_OPENING_BATCHES = 5  # maximum number of batches until the gate opens on a shift
MIN_GAIN = 0.02  # minimum gain of which a share is meaningful
MIN_KEPT_SHARE, SMALL_BATCH, FULL_BATCH = 0.75, 8, 64  # share of SSA's gain at batch size 64 to keep at batch size 8


@dataclass(frozen=True)
class MeanScore:
    """Mean over source models and parts.

    Attributes:
        value: the mean; NaN if there are no runs or one diverged.
        runs: number of runs.
        diverged_runs: number of diverged runs.
    """

    value: float
    runs: int
    diverged_runs: int


def mean_r2(runs: Sequence[StressResult]) -> MeanScore:
    """Return the mean online R² of ``runs``; NaN if one diverged."""
    diverged = sum(run.has_diverged for run in runs)
    value = fmean(run.r2 for run in runs) if runs and not diverged else math.nan
    return MeanScore(value, len(runs), diverged)


# --- streams -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamRow:
    """Mean R² of one method on one kind of stream, by batch size and guards, with that of Source."""

    method_name: str
    kind: str
    source: MeanScore
    means: dict[tuple[int, str], MeanScore]


def batch_sizes(results: StressResults) -> tuple[int, ...]:
    """Return the batch sizes of the compared runs in ascending order."""
    return tuple(
        sorted(
            {
                run.batch_size
                for run in results.runs
                if run.guards in COMPARED_GUARDS and run.method_name != SOURCE_METHOD
            }
        )
    )


def stream_rows(results: StressResults) -> tuple[StreamRow, ...]:
    """Return a row for every method and kind of stream with runs."""
    rows = []
    for method_name, kind in _methods_and_kinds(results):
        means = {
            (size, guards): mean_r2(_of_batch_size(results.select(method_name, kind, guards), size))
            for size in batch_sizes(results)
            for guards in COMPARED_GUARDS
        }
        rows.append(StreamRow(method_name, kind, mean_r2(results.select(SOURCE_METHOD, kind, PLAIN_GUARDS)), means))
    return tuple(rows)


def _of_batch_size(runs: Iterable[StressResult], batch_size: int) -> tuple[StressResult, ...]:
    return tuple(run for run in runs if run.batch_size == batch_size)


def _methods_and_kinds(results: StressResults) -> list[tuple[str, str]]:
    present = {(run.method_name, run.kind) for run in results.runs if run.guards in COMPARED_GUARDS}
    return [
        (method_name, kind)
        for method_name in ADAPTATION_METHODS
        for kind in STREAM_KINDS
        if (method_name, kind) in present
    ]


# --- safety --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SafetyRow:
    """Worst runs of one method on one kind of stream, by difference to Source, with SAFE and plain guards."""

    method_name: str
    kind: str
    safe: StressResult | None
    plain: StressResult | None

    @property
    def is_met(self) -> bool:
        """True if no run under SAFE falls more than permitted below Source."""
        return self.safe is not None and not self.safe.has_diverged and self.safe.gain >= MIN_SAFE_GAIN


def safety_rows(results: StressResults) -> tuple[SafetyRow, ...]:
    """Return a row for every method and kind of stream with runs."""
    return tuple(
        SafetyRow(
            method_name,
            kind,
            worst_run(results.select(method_name, kind, SAFE_GUARDS)),
            worst_run(results.select(method_name, kind, PLAIN_GUARDS)),
        )
        for method_name, kind in _methods_and_kinds(results)
    )


def worst_run(runs: Iterable[StressResult]) -> StressResult | None:
    """Return the run with the lowest gain over its source model; diverged runs rank lowest."""
    return min(runs, key=lambda run: -math.inf if run.has_diverged else run.gain, default=None)


# --- small batches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallBatchRow:
    """Results of one method at one batch size on shuffled shifted streams, with plain guards.

    Attributes:
        method_name: name of the method.
        batch_size: samples per step.
        r2: mean R².
        gain: mean gain over Source; NaN if a run diverged.
        kept_share: ``gain`` as a share of SSA's gain at batch size 64; NaN if that is unknown or negligible.
        is_met: True if at most a quarter of SSA's gain at batch size 64 is lost (none of it, if it is negative); None
            for batch sizes without a criterion.
    """

    method_name: str
    batch_size: int
    r2: MeanScore
    gain: float
    kept_share: float
    is_met: bool | None


def small_batch_rows(results: StressResults) -> tuple[SmallBatchRow, ...]:
    """Return rows of SSA with and without a window, at every batch size with runs."""
    full_gain = _mean_gain(_small_batch_runs(results, "ssa", FULL_BATCH))
    rows = []
    for method_name in ("ssa", SSA_WINDOW):
        for size in batch_sizes(results):
            runs = _small_batch_runs(results, method_name, size)
            if runs:
                gain = _mean_gain(runs)
                kept = gain / full_gain if full_gain >= MIN_GAIN else math.nan
                is_judged = size == SMALL_BATCH and not math.isnan(full_gain)
                met = gain >= full_gain - (1 - MIN_KEPT_SHARE) * max(full_gain, 0.0)
                rows.append(SmallBatchRow(method_name, size, mean_r2(runs), gain, kept, met if is_judged else None))
    return tuple(rows)


def _small_batch_runs(results: StressResults, method_name: str, size: int) -> tuple[StressResult, ...]:
    return _of_batch_size(results.select(method_name, "iid", PLAIN_GUARDS), size)


def _mean_gain(runs: Sequence[StressResult]) -> float:
    return fmean(run.gain for run in runs) if runs and not any(run.has_diverged for run in runs) else math.nan


# --- the gate ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateFindings:
    """Behaviour of the gate; each value is the worst over source models.

    Attributes:
        batches: number of batches in the clean stream.
        still_share: share of its batches without an update.
        worst_gain: R² minus Source's on it.
        opening_batches: number of batches until the first update, by part; infinity if there was none.
        source_models: number of source models.
    """

    batches: int
    still_share: float
    worst_gain: float
    opening_batches: dict[str, float]
    source_models: int


def gate_findings(results: StressResults) -> GateFindings | None:
    """Return the findings on the longest clean streams; None if there are no runs with the gate."""
    gated = results.select("ssa", REDRAWN, GATE_GUARDS)
    longest = max((run.batches for run in gated), default=0)
    clean = [run for run in gated if run.batches == longest]
    if not clean:
        return None
    opening_batches: dict[str, float] = {}
    for run in results.select("ssa", "iid", GATE_GUARDS):
        first = math.inf if run.first_learned is None else run.first_learned
        opening_batches[run.part] = max(opening_batches.get(run.part, 0), first)
    return GateFindings(
        longest,
        min(1 - run.learned / run.batches for run in clean),
        min(-math.inf if run.has_diverged else run.gain for run in clean),
        opening_batches,
        len({run.seed for run in clean}),
    )


CURVES = (
    ("Source", SOURCE_METHOD, PLAIN_GUARDS),
    ("ssa, plain", "ssa", PLAIN_GUARDS),
    ("ssa, safe", "ssa", SAFE_GUARDS),
)


def shown_batch_size(results: StressResults) -> int:
    """Return 64 if there are runs of that batch size, else the largest available one."""
    sizes = batch_sizes(results)
    return FULL_BATCH if FULL_BATCH in sizes else max(sizes, default=0)


def stream_curves(results: StressResults) -> tuple[RunningScores, ...]:
    """Return the curves of each kind of stream that SSA was run on, averaged over source models and shifts."""
    size, curves = shown_batch_size(results), []
    for kind in STREAM_KINDS:
        lines = {}
        for name, method_name, guards in CURVES:
            runs = [
                run
                for run in results.select(method_name, kind, guards)
                if run.batch_size == size or method_name == SOURCE_METHOD
            ]
            slices = {len(run.slices) for run in runs}
            if len(slices) == 1:
                lines[name] = np.array([run.slices for run in runs]).mean(axis=0)
        if len(lines) > 1:
            curves.append(RunningScores(kind, lines))
    return tuple(curves)
