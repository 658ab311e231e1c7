"""How well a number tells positives from negatives: the area under its ROC curve, with DeLong's interval."""

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
        auc: chance that a positive lies above a negative; ties count half.
        low: lower end of the interval of 95 %.
        high: upper end.
        positives: how many.
        negatives: how many.
        found: share of the positives above the limit that at most 5 % of the negatives exceed.
    """

    auc: float
    low: float
    high: float
    positives: int
    negatives: int
    found: float


def roc_of(positives: Array, negatives: Array) -> Roc:
    """The area with DeLong's interval (DeLong, DeLong and Clarke-Pearson, 1988), cut to [0, 1].

    The interval takes cases for independent. Cases that share a model and held-out samples are not quite: take it for
    too narrow rather than too wide.

    Example:
        >>> roc_of(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.0])).auc.__round__(3)
        0.944
    """
    if len(positives) < 2 or len(negatives) < 2:
        raise OptionError(f"Expected two of each or more, found {len(positives)} and {len(negatives)}.")
    # Placements: for each positive the share of negatives below it, and for each negative of positives above it.
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
    """False and true positive rates at every limit, from (0, 0) to (1, 1).

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
    """The least of the negatives' values that at most ``rate`` of them exceed."""
    ordered = np.sort(negatives)
    return float(ordered[len(ordered) - 1 - math.floor(rate * len(ordered))])
