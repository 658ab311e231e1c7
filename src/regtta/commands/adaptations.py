"""Report of ``regtta adapt``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regtta.metrics import Scores


@dataclass(frozen=True)
class AdaptReport:
    """Report of ``regtta adapt``.

    Attributes:
        method: name of the method.
        protocol: protocol of the predictions written and scored.
        samples: number of rows.
        not_finite: number of predictions that are NaN or infinite.
        learned: number of batches learned from.
        refused: number of other batches by reason, most frequent first.
        excluded: number of samples excluded from learning.
        unscored: number of rows excluded from the scores because inputs or labels are missing.
        scores: scores of the unadapted model and of the predictions; ``None`` without labels.
        written: output files.
        alarms: one line per alarm of the monitor; empty without a monitor.
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
