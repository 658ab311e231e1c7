"""ROC curves with confidence intervals, and their figure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regtta.errors import OptionError
from regtta.report.figures import GREY, add_caption, add_legend, new_figure, prepare_axes, series_style, set_title

Array = NDArray[np.float64]

ROC_CONFIDENCE = 0.95
MAX_FALSE_POSITIVE_RATE = 0.05


@dataclass(frozen=True)
class Roc:
    """One signal on one question.

    Attributes:
        auc: probability that a positive ranks above a negative; ties count half.
        low: lower end of the 95 % confidence interval.
        high: upper end of the interval.
        positives: number of positives.
        negatives: number of negatives.
        tpr_at_5_percent: true positive rate at a false positive rate of at most 5 %.
    """

    auc: float
    low: float
    high: float
    positives: int
    negatives: int
    tpr_at_5_percent: float


def compute_roc(positives: Array, negatives: Array) -> Roc:
    """Compute the AUC with DeLong's interval (DeLong, DeLong and Clarke-Pearson, 1988), clipped to [0, 1].

    The interval assumes independent cases. Cases that share a model and held-out samples are correlated, so it is
    probably too narrow.

    Example:
        >>> compute_roc(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.0])).auc.__round__(3)
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
    reach = NormalDist().inv_cdf((1 + ROC_CONFIDENCE) / 2) * sd
    limit = _false_positive_threshold(negatives, MAX_FALSE_POSITIVE_RATE)
    return Roc(
        auc,
        max(0.0, auc - reach),
        min(1.0, auc + reach),
        len(positives),
        len(negatives),
        float((positives > limit).mean()),
    )


def compute_roc_curve(positives: Array, negatives: Array) -> tuple[Array, Array]:
    """Return false and true positive rates at every threshold, from (0, 0) to (1, 1).

    Example:
        >>> [rates.tolist() for rates in compute_roc_curve(np.array([1.0, 3.0]), np.array([0.0, 2.0]))]
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


def _false_positive_threshold(negatives: Array, rate: float) -> float:
    """Return the smallest value of the negatives that at most a share ``rate`` of them exceeds."""
    ordered = np.sort(negatives)
    return float(ordered[len(ordered) - 1 - math.floor(rate * len(ordered))])


Curve = tuple[NDArray[np.float64], NDArray[np.float64], float]


def draw_roc(curves: Mapping[str, Curve], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot the ROC curves of several signals, with the area under each.

    Args:
        curves: false positive rates, true positive rates and area under the curve by signal.
        ax: axes to draw on; a new figure by default.
        title: title of the plot.
    """
    axes = prepare_axes(ax, x="false alarms (share of negatives)", y="found (share of positives)")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    for place, (name, (false, true, area)) in enumerate(curves.items()):
        look = series_style(place)
        axes.plot(
            false, true, color=look.colour, linestyle=look.line, linewidth=1.5, marker=look.marker, markersize=4,
            markevery=(0.05 + 0.02 * place, 0.2), label=f"{name}, {area:.2f}",
        )  # fmt: skip
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.02)
    set_title(axes, title)
    add_legend(axes, loc="lower right", title="signal, area", title_fontsize=8)
    return axes


def roc_panels(questions: Mapping[str, Mapping[str, Curve]], note: str) -> Figure:
    """Plot the ROC curves of each question side by side, with ``note`` as the caption."""
    figure = new_figure(4.6 * max(len(questions), 1), 4.2)
    for place, (question, curves) in enumerate(questions.items()):
        axes = draw_roc(curves, figure.add_subplot(1, len(questions), place + 1), title=question)
        if place > 0:
            axes.set_ylabel("")
    add_caption(figure, note)
    return figure
