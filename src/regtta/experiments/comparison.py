"""Whether one method beats another: paired differences over the same source models, with bootstrap intervals.

Source models differ more from each other than methods do, so scores are compared only on the same source model, and
the interval is over source models.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regtta.errors import OptionError

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its interval; the interval of fewer than two pairs is unknown (NaN).

    Attributes:
        mean: of first less second.
        low: lower end of the interval.
        high: upper end.
        pairs: how many source models both were run on.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def decided(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def paired_difference(
    first: Mapping[int, float], second: Mapping[int, float], *, confidence: float = CONFIDENCE, seed: int = 0
) -> Difference:
    """``first`` less ``second``, both by source model, over the source models that both have.

    The interval is the percentile bootstrap of the mean over source models. With so few of them as experiments have, it
    is too narrow rather than too wide: take an interval close to zero for undecided.

    Example:
        >>> gap = paired_difference({0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.5, 2: 0.6})
        >>> round(gap.mean, 3), gap.pairs, gap.decided
        (0.2, 3, True)
    """
    if not 0 < confidence < 1:
        raise OptionError(f"Expected a confidence between 0 and 1, found {confidence}.")
    shared = sorted(first.keys() & second.keys())
    gaps = np.array([first[key] - second[key] for key in shared], dtype=np.float64)
    if len(gaps) == 0:
        return Difference(math.nan, math.nan, math.nan, 0)
    if len(gaps) == 1 or not np.isfinite(gaps).all():
        return Difference(float(gaps.mean()), math.nan, math.nan, len(gaps))
    drawn = np.random.default_rng(seed).integers(len(gaps), size=(RESAMPLES, len(gaps)))
    means = gaps[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(float(gaps.mean()), float(low), float(high), len(gaps))


def best_of(scores: Mapping[str, Mapping[int, float]], *, larger: bool = True) -> tuple[str, ...]:
    """The method of the best mean score, and all that its intervals do not put behind it.

    Args:
        scores: by method, then by source model.
        larger: whether larger is better.

    Example:
        >>> same = {0: 0.5, 1: 0.6}
        >>> best_of({"ssa": same, "bn_adapt": {0: 0.51, 1: 0.59}, "source": {0: 0.1, 1: 0.2}})
        ('ssa', 'bn_adapt')
    """
    sign = 1.0 if larger else -1.0
    whole = {
        name: {key: sign * value for key, value in values.items()}
        for name, values in scores.items()
        if values and all(map(math.isfinite, values.values()))
    }
    if not whole:
        return ()
    leader = max(whole, key=lambda name: float(np.mean(list(whole[name].values()))))
    return tuple(name for name in whole if name == leader or not paired_difference(whole[leader], whole[name]).decided)
