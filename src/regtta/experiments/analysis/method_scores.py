"""Scores of several methods on several streams, with what they scatter over."""

from collections.abc import Mapping
from dataclasses import dataclass

from regtta.experiments.analysis.reports import Array, Report


@dataclass(frozen=True, eq=False)
class MethodScores(Report):
    """Scores by method and stream.

    Attributes:
        score: what they are, such as ``"R²"``.
        streams: their names, in order.
        means: (S,) by method, one for each stream; NaN where a run diverged or there is none.
        sds: (S,) by method, over source models; NaN where unknown.
        published: (S,) by method: numbers printed elsewhere; NaN where there are none.
        sources: how many source models.
    """

    score: str
    streams: tuple[str, ...]
    means: Mapping[str, Array]
    sds: Mapping[str, Array]
    published: Mapping[str, Array]
    sources: int
