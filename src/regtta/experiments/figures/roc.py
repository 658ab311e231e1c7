"""ROC curves: true positive rate of a signal against its false positive rate."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regtta.experiments.figures.style import GREY, caption, keyed, look_of, new_figure, prepared, titled

Curve = tuple[NDArray[np.float64], NDArray[np.float64], float]


def draw_roc(curves: Mapping[str, Curve], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Plot the ROC curves of several signals, with the area under each.

    Args:
        curves: false positive rates, true positive rates and area under the curve by signal.
        ax: axes to draw on; a new figure by default.
        title: title of the plot.
    """
    axes = prepared(ax, x="false alarms (share of negatives)", y="found (share of positives)")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    for place, (name, (false, true, area)) in enumerate(curves.items()):
        look = look_of(place)
        axes.plot(
            false, true, color=look.colour, linestyle=look.line, linewidth=1.5, marker=look.marker, markersize=4,
            markevery=(0.05 + 0.02 * place, 0.2), label=f"{name}, {area:.2f}",
        )  # fmt: skip
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.02)
    titled(axes, title)
    keyed(axes, loc="lower right", title="signal, area", title_fontsize=8)
    return axes


def roc_panels(questions: Mapping[str, Mapping[str, Curve]], note: str) -> Figure:
    """Plot the ROC curves of each question side by side, with ``note`` as the caption."""
    figure = new_figure(4.6 * max(len(questions), 1), 4.2)
    for place, (question, curves) in enumerate(questions.items()):
        axes = draw_roc(curves, figure.add_subplot(1, len(questions), place + 1), title=question)
        if place > 0:
            axes.set_ylabel("")
    caption(figure, note)
    return figure
