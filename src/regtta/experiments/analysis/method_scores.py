"""Scores of several methods on several streams, with their standard deviations."""

from collections.abc import Mapping
from dataclasses import dataclass

from regtta.experiments.analysis.reports import Array, Report


@dataclass(frozen=True, eq=False)
class MethodScores(Report):
    """Scores by method and stream.

    Attributes:
        score: name of the score, such as ``"R²"``.
        streams: names of the S streams, in order.
        means: mean scores by method, each (S,); NaN if a run diverged or is missing.
        sds: standard deviations over source models by method, each (S,); NaN if unknown.
        published: published scores by method, each (S,); NaN if there are none.
        sources: number of source models.
    """

    score: str
    streams: tuple[str, ...]
    means: Mapping[str, Array]
    sds: Mapping[str, Array]
    published: Mapping[str, Array]
    sources: int
