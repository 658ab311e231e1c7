"""Scores of the suite by shift and row, read from the lines of a run store."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from regtta_bench.paper import NO_STEP_TAKEN, PROTOCOLS, CellSpec, TableSpec
from regtta_bench.shifts.rows import SOURCE
from regtta_bench.shifts.suite import Shift
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.sweep.store import compute_key
from regtta_bench.tables import Difference, paired_difference

FLOOR = -1.0  # R² is clipped there, since a score far below says only that the model is useless


@dataclass(frozen=True)
class ShiftScore:
    """R² of one row on one shift under one protocol.

    Attributes:
        raw: mean over adaptation seeds, by seed of the source model; NaN if one of them diverged.
        clipped: the same with every R² clipped at −1, and −1 for a run that diverged.
        runs: number of available runs.
        diverged: number of available runs that diverged.
        missing: number of missing runs.
    """

    raw: Mapping[int, float]
    clipped: Mapping[int, float]
    runs: int
    diverged: int
    missing: int

    @property
    def mean(self) -> float:
        """Mean over source models; NaN if there is none or if a run diverged."""
        return statistics.fmean(self.raw.values()) if self.raw else math.nan

    @property
    def clipped_mean(self) -> float:
        """Mean over source models of the clipped R²; NaN if there is none."""
        return statistics.fmean(self.clipped.values()) if self.clipped else math.nan


@dataclass(frozen=True)
class SuiteScores:
    """Scores of the whole suite.

    Attributes:
        shifts: shifts with at least one run, in the order of the suite.
        rows: names of the rows with at least one run.
        scores: scores by protocol, shift and row; no entry where a method does not fit the shift.
        seeds: number of adaptation seeds on each source model.
    """

    shifts: tuple[Shift, ...]
    rows: tuple[str, ...]
    scores: Mapping[tuple[str, str, str], ShiftScore]
    seeds: int

    def score(self, shift: str, row: str, protocol: str = "offline") -> ShiftScore | None:
        """Return the score of a row on a shift; None if the method does not fit or nothing was run."""
        found = self.scores.get((protocol, shift, row))
        return found if found is not None and found.runs else None

    def gains(self, shift: str, row: str, *, over: str = SOURCE, protocol: str = "offline") -> dict[int, float]:
        """Return the clipped R² of ``row`` minus that of ``over``, by seed of the source models that both have."""
        mine, other = self.score(shift, row, protocol), self.score(shift, over, protocol)
        if mine is None or other is None:
            return {}
        return {seed: mine.clipped[seed] - other.clipped[seed] for seed in mine.clipped if seed in other.clipped}

    def difference(self, shift: str, row: str, *, over: str = SOURCE, protocol: str = "offline") -> Difference:
        """Return the paired difference of the clipped R² of ``row`` and ``over``, with its interval."""
        return _difference(tuple(self.gains(shift, row, over=over, protocol=protocol).items()))


@cache
def _difference(gains: tuple[tuple[int, float], ...]) -> Difference:
    """Return the mean gain with its interval, cached since several files print it."""
    return paired_difference(dict(gains), {seed: 0.0 for seed, _ in gains})


def collect_scores(
    shifts: Sequence[Shift], table: TableSpec, plan: SweepPlan, records: Iterable[Mapping[str, Any]]
) -> SuiteScores:
    """Collect the scores of all cells of ``table``, whose columns are ``shifts``, from the lines of a run store."""
    results = {str(record["key"]): record["result"] for record in records}
    scores = {
        (protocol, shift.name, row.name): score
        for row in table.rows
        for shift, cell in zip(shifts, row.cells, strict=True)
        if cell is not None
        for protocol, score in _cell_scores(cell, plan, results).items()
    }
    run = {(shift, row) for (_, shift, row), score in scores.items() if score.runs}
    return SuiteScores(
        shifts=tuple(shift for shift in shifts if any(shift.name == name for name, _ in run)),
        rows=tuple(row.name for row in table.rows if any(row.name == name for _, name in run)),
        scores=scores,
        seeds=plan.seeds,
    )


def _cell_scores(cell: CellSpec, plan: SweepPlan, results: Mapping[str, Mapping[str, Any]]) -> dict[str, ShiftScore]:
    by_source: dict[int, list[Mapping[str, Any]]] = {}
    keys: set[str] = set()
    for source_seed in plan.source_seed_range(cell.setting):
        mine = [
            compute_key(spec.to_dict())
            for seed in range(plan.seeds)
            for spec, _ in plan.cell_runs(cell, source_seed, seed)
        ]
        keys.update(mine)
        if all(key in results for key in mine):
            by_source[source_seed] = [results[key] for key in mine]
    available = [results[key] for key in keys if key in results]
    return {
        protocol: ShiftScore(
            raw={seed: statistics.fmean(_raw(run, protocol) for run in runs) for seed, runs in by_source.items()},
            clipped={
                seed: statistics.fmean(_clipped(run, protocol) for run in runs) for seed, runs in by_source.items()
            },
            runs=len(available),
            diverged=sum(math.isnan(_raw(run, protocol)) for run in available),
            missing=len(keys) - len(available),
        )
        for protocol in PROTOCOLS
    }


def _raw(result: Mapping[str, Any], protocol: str) -> float:
    """Return the R² of a run; NaN if it diverged. A method that never took a step did not diverge."""
    score = result["scores"][protocol]["r2"]
    return math.nan if score is None or result["diverged"] not in ("", NO_STEP_TAKEN) else float(score)


def _clipped(result: Mapping[str, Any], protocol: str) -> float:
    score = _raw(result, protocol)
    return FLOOR if math.isnan(score) else max(FLOOR, score)
