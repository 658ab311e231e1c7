"""ROC curves, and their AUC with DeLong's confidence interval."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from regtta.errors import OptionError

Array = NDArray[np.float64]

CONFIDENCE = 0.95
FALSE_POSITIVES = 0.05


@dataclass(frozen=True)
class Roc:
    """One signal on one question.

    Attributes:
        auc: probability that a positive ranks above a negative; ties count half.
        low: lower end of the 95 % confidence interval.
        high: upper end of the interval.
        positives: number of positives.
        negatives: number of negatives.
        found: true positive rate at a false positive rate of at most 5 %.
    """

    auc: float
    low: float
    high: float
    positives: int
    negatives: int
    found: float


def roc_of(positives: Array, negatives: Array) -> Roc:
    """Compute the AUC with DeLong's interval (DeLong, DeLong and Clarke-Pearson, 1988), clipped to [0, 1].

    The interval assumes independent cases. Cases that share a model and held-out samples are correlated, so it is
    probably too narrow.

    Example:
        >>> roc_of(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.0])).auc.__round__(3)
        0.944
    """
    if len(positives) < 2 or len(negatives) < 2:
        raise OptionError(
            f"Expected at least two of each class, found {len(positives)} positives and {len(negatives)} negatives."
        )
    # Placements: the share of negatives below each positive, and of positives above each negative.
    above = _share_below(positives, negatives)
    below = 1 - _share_below(negatives, positives)
    auc = float(above.mean())
    sd = math.sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below))
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * sd
    limit = _limit(negatives, FALSE_POSITIVES)
    return Roc(
        auc,
        max(0.0, auc - reach),
        min(1.0, auc + reach),
        len(positives),
        len(negatives),
        float((positives > limit).mean()),
    )


def curve_of(positives: Array, negatives: Array) -> tuple[Array, Array]:
    """Return false and true positive rates at every threshold, from (0, 0) to (1, 1).

    Example:
        >>> [rates.tolist() for rates in curve_of(np.array([1.0, 3.0]), np.array([0.0, 2.0]))]
        [[0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0]]
    """
    limits = np.unique(np.concatenate([positives, negatives]))[::-1]
    rates = [(np.sort(values)[None] >= limits[:, None]).mean(axis=1) for values in (negatives, positives)]
    first, second = (np.concatenate([[0.0], rate]) for rate in rates)
    return first, second


def _share_below(values: Array, others: Array) -> Array:
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    share: Array = (below + up_to) / 2 / len(others)
    return share


def _limit(negatives: Array, rate: float) -> float:
    """Return the smallest value of the negatives that at most a share ``rate`` of them exceeds."""
    ordered = np.sort(negatives)
    return float(ordered[len(ordered) - 1 - math.floor(rate * len(ordered))])
