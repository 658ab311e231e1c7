"""Paired comparison of methods over the same source models, with bootstrap confidence intervals.

Source models differ more from each other than methods do, so scores are compared only on the same source model, and
source models are the unit of resampling.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import bootstrap

from regtta.errors import OptionError

RESAMPLES = 10_000
CONFIDENCE_LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its confidence interval, which is NaN for fewer than two pairs.

    Attributes:
        mean: mean of ``first - second``.
        low: lower end of the interval.
        high: upper end of the interval.
        pairs: number of source models both were run on.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def is_significant(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired_difference(
    first: Mapping[int, float], second: Mapping[int, float], *, confidence: float = CONFIDENCE_LEVEL, seed: int = 0
) -> Difference:
    """Compute the mean of ``first - second`` over the source models that both have, with its confidence interval.

    The interval is the percentile bootstrap of the mean over source models (:func:`scipy.stats.bootstrap`). With the
    few source models of an experiment it is too narrow rather than too wide: treat an interval that ends close to zero
    as undecided.

    Args:
        first: score by source model.
        second: score by source model.
        confidence: level of the interval.
        seed: seed of the bootstrap.

    Example:
        >>> difference = paired_difference({0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.5, 2: 0.6})
        >>> round(difference.mean, 3), difference.pairs, difference.is_significant
        (0.2, 3, True)
    """
    if not 0 < confidence < 1:
        raise OptionError(f"Expected a confidence between 0 and 1, found {confidence}.")
    shared = sorted(first.keys() & second.keys())
    differences = np.array([first[key] - second[key] for key in shared], dtype=np.float64)
    if len(differences) == 0:
        return Difference(math.nan, math.nan, math.nan, 0)
    mean = float(differences.mean())
    if len(differences) == 1 or not np.isfinite(differences).all():
        return Difference(mean, math.nan, math.nan, len(differences))
    resampled = bootstrap(
        (differences,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(seed)
    ).bootstrap_distribution
    # NumPy's quantile: scipy's interval is rounded differently in the last bit, and the tables print every digit.
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(mean, float(low), float(high), len(differences))


def best_methods(scores: Mapping[str, Mapping[int, float]], *, larger_is_better: bool = True) -> tuple[str, ...]:
    """Return the method of the best mean score, and all methods whose paired difference to it is undecided.

    Methods without scores or with scores that are not finite are left out.

    Args:
        scores: scores by method, then by source model.
        larger_is_better: True if larger is better.

    Example:
        >>> same = {0: 0.5, 1: 0.6}
        >>> best_methods({"ssa": same, "bn_adapt": {0: 0.51, 1: 0.59}, "source": {0: 0.1, 1: 0.2}})
        ('ssa', 'bn_adapt')
    """
    sign = 1.0 if larger_is_better else -1.0
    finite = {
        name: {key: sign * value for key, value in values.items()}
        for name, values in scores.items()
        if values and all(map(math.isfinite, values.values()))
    }
    if not finite:
        return ()
    leader = max(finite, key=lambda name: float(np.mean(list(finite[name].values()))))
    return tuple(
        name for name in finite if name == leader or not paired_difference(finite[leader], finite[name]).is_significant
    )
