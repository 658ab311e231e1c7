"""Summary of a half of the suite by row: gains with intervals, harmed shifts, and the worst shift."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regtta_bench.shifts.results import SuiteScores
from regtta_bench.shifts.rows import BN_ADAPT, SOURCE, SSA_PAPER
from regtta_bench.tables import CONFIDENCE_LEVEL, RESAMPLES, Difference

HARM = 0.02  # a shift is harmed if R² is lower than the source model's by more than this
MARGIN = 0.01  # a shift is on a par with a reference if R² is at most this much lower
REFERENCES = (SSA_PAPER, BN_ADAPT)


@dataclass(frozen=True)
class RowSummary:
    """Summary of one row on one half of the suite. All differences are of R² clipped at −1.

    Attributes:
        row: name of the row.
        half: name of the half.
        shifts: number of shifts with scores of the row and of the source model.
        diverged: number of runs that diverged.
        raw_mean: mean over shifts of R² without clipping; NaN if a run diverged.
        mean: mean over shifts of the clipped R².
        gain: mean gain over the source model offline.
        online_gain: mean gain over the source model online.
        over_references: mean gain over each of ``REFERENCES`` offline; 0 pairs for the reference itself.
        harmed: number of shifts more than ``HARM`` below the source model.
        on_par: share of shifts at or above the better of the references minus ``MARGIN``; NaN without references.
        worst_shift: name of the shift with the lowest gain; empty without shifts.
        worst_gain: the lowest gain.
    """

    row: str
    half: str
    shifts: int
    diverged: int
    raw_mean: float
    mean: float
    gain: Difference
    online_gain: Difference
    over_references: tuple[Difference, ...]
    harmed: int
    on_par: float
    worst_shift: str
    worst_gain: float


def bootstrap_shifts(gains: Sequence[Sequence[float]], *, seed: int = 0) -> Difference:
    """Return the mean over shifts of the mean over source models, with a bootstrap interval over both.

    Each resample draws shifts with replacement and, within each drawn shift, source models with replacement; the
    interval is the percentile interval of the means.

    Args:
        gains: gains by shift, then by source model; each shift has at least one.
        seed: seed of the bootstrap.

    Returns:
        The mean, the interval (NaN for fewer than two shifts), and the number of shifts as ``pairs``.

    Example:
        >>> bootstrap_shifts([[0.1, 0.3], [0.4, 0.6]]).mean
        0.35
    """
    if not gains:
        return Difference(math.nan, math.nan, math.nan, 0)
    mean = float(np.mean([np.mean(mine) for mine in gains]))
    if len(gains) == 1:
        return Difference(mean, math.nan, math.nan, 1)
    counts = np.array([len(mine) for mine in gains])
    values = np.array([[*mine, *[0.0] * (counts.max() - len(mine))] for mine in gains])
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(gains), size=(RESAMPLES, len(gains)))
    totals = np.zeros(drawn.shape)
    for model in range(counts.max()):
        among = (rng.random(drawn.shape) * counts[drawn]).astype(np.int64)
        totals += np.where(model < counts[drawn], values[drawn, among], 0.0)
    means = (totals / counts[drawn]).mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return Difference(mean, float(low), float(high), len(gains))


def summarise(scores: SuiteScores, half: str) -> tuple[RowSummary, ...]:
    """Return the summaries of all rows on the shifts of ``half``."""
    return tuple(_summarise_row(scores, row, half) for row in scores.rows)


def _summarise_row(scores: SuiteScores, row: str, half: str) -> RowSummary:
    shifts = [
        shift.name for shift in scores.shifts if shift.half == half and scores.gains(shift.name, row, over=SOURCE)
    ]
    found = [score for name in shifts if (score := scores.score(name, row)) is not None]
    by_shift = {name: float(np.mean(list(scores.gains(name, row).values()))) for name in shifts}
    worst = min(by_shift, key=by_shift.__getitem__, default="")
    return RowSummary(
        row=row,
        half=half,
        shifts=len(shifts),
        diverged=sum(score.diverged for score in found),
        raw_mean=float(np.mean([score.mean for score in found])) if found else math.nan,
        mean=float(np.mean([score.clipped_mean for score in found])) if found else math.nan,
        gain=_mean_gain(scores, shifts, row, SOURCE, "offline"),
        online_gain=_mean_gain(scores, shifts, row, SOURCE, "online"),
        over_references=tuple(
            bootstrap_shifts([]) if reference == row else _mean_gain(scores, shifts, row, reference, "offline")
            for reference in REFERENCES
        ),
        harmed=sum(gain < -HARM for gain in by_shift.values()),
        on_par=_share_on_par(scores, shifts, row),
        worst_shift=worst,
        worst_gain=by_shift.get(worst, math.nan),
    )


def _mean_gain(scores: SuiteScores, shifts: Sequence[str], row: str, over: str, protocol: str) -> Difference:
    gains = (scores.gains(shift, row, over=over, protocol=protocol) for shift in shifts)
    return bootstrap_shifts([list(mine.values()) for mine in gains if mine])


def _share_on_par(scores: SuiteScores, shifts: Sequence[str], row: str) -> float:
    """Return the share of the shifts with scores of all references where the row is on a par with the best of them."""
    least = []
    for shift in shifts:
        over = [scores.gains(shift, row, over=reference) for reference in REFERENCES]
        if all(over):
            least.append(min(float(np.mean(list(mine.values()))) for mine in over))
    return float(np.mean([gain >= -MARGIN for gain in least])) if least else math.nan
