"""Report of an adaptation."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regtta.metrics import Scores


@dataclass(frozen=True)
class AdaptReport:
    """What came of it.

    Attributes:
        method: its name.
        protocol: whose predictions were written and scored.
        samples: how many rows.
        not_finite: how many predictions are NaN or infinite.
        learned: batches learned from.
        refused: how many batches were not, by reason, the most frequent first.
        excluded: samples left out of learning, in whatever batches.
        unscored: rows left out of the scores, since inputs or labels are missing there.
        scores: of the unadapted model and of the predictions, where there were labels.
        written: the files.
        alarms: what the monitor has to say, a line each; empty without one.
    """

    method: str
    protocol: str
    samples: int
    not_finite: int
    learned: int
    refused: Mapping[str, int]
    unscored: int
    scores: tuple[Scores, Scores] | None
    written: tuple[Path, ...]
    alarms: tuple[str, ...] = ()
    excluded: int = 0
