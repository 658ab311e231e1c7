"""Scores along a stream, of several methods."""

from collections.abc import Mapping
from dataclasses import dataclass

from regtta.experiments.analysis.reports import Array, Report


@dataclass(frozen=True, eq=False)
class RunningScores(Report):
    """R² in equal slices of one kind of stream.

    Attributes:
        kind: of the stream.
        lines: (slices,) by method; NaN where there is no score.
    """

    kind: str
    lines: Mapping[str, Array]
