"""Scores of several methods along a stream."""

from collections.abc import Mapping
from dataclasses import dataclass

from regtta.experiments.analysis.reports import Array, Report


@dataclass(frozen=True, eq=False)
class RunningScores(Report):
    """R² in equal slices of one kind of stream.

    Attributes:
        kind: kind of the stream.
        lines: R² of each slice by method, each (slices,); NaN if there is no score.
    """

    kind: str
    lines: Mapping[str, Array]
