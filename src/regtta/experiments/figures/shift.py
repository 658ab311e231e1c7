"""Plot of the shift of the target from the source along each direction, before and after adaptation."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from regtta.experiments.analysis.shift import ShiftReport
from regtta.experiments.figures.style import GREY, keyed, look_of, prepared, titled
from regtta.options import check_choice

_SHOWN = 30  # maximum number of directions, so that markers do not overlap
_LABELS = {"means": "mean (source sd)", "spreads": "sd / source's sd"}
_LEVELS = {"means": 0.0, "spreads": 1.0}


def draw_shift(report: ShiftReport, moment: Literal["means", "spreads"] = "means", ax: Axes | None = None) -> Axes:
    """Plot the means or spreads along the leading directions for each set of features; the line marks the source.

    Args:
        report: report to plot.
        moment: ``"means"``, in source standard deviations, or ``"spreads"``, relative to the source.
        ax: axes to draw on; a new figure by default.
    """
    check_choice("moment", moment, _LABELS.keys())
    axes = prepared(ax, x="source direction, from 0", y=_LABELS[moment])
    axes.axhline(_LEVELS[moment], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="source")
    values = getattr(report, moment)
    for place, (name, column) in enumerate(values.items()):
        look = look_of(3 * place)  # black crosses, then blue circles
        shown = column[:_SHOWN]
        axes.plot(
            np.arange(len(shown)), shown, color=look.colour, marker=look.marker, markersize=5, linestyle="none",
            markerfacecolor="none" if place == 0 else look.colour, label=f"{name}, N = {report.counts[name]}",
        )  # fmt: skip
    directions = len(next(iter(values.values())))
    titled(axes, f"first {min(_SHOWN, directions)} of {directions} directions")
    keyed(axes, loc="best")
    return axes
