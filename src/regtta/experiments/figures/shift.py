"""How far the target is from the source, direction by direction, before adapting and after."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from regtta.experiments.analysis.shift import ShiftReport
from regtta.experiments.figures.style import GREY, keyed, look_of, prepared, titled
from regtta.options import check_choice

_SHOWN = 30  # directions beyond which dots would touch
_LABELS = {"means": "mean (source sd)", "spreads": "sd / source's sd"}
_LEVELS = {"means": 0.0, "spreads": 1.0}


def draw_shift(report: ShiftReport, moment: Literal["means", "spreads"] = "means", ax: Axes | None = None) -> Axes:
    """Means or spreads of the leading directions, a mark for each kind of features; the line is the source's own.

    Args:
        report: what to draw.
        moment: ``"means"`` in the source's standard deviations, or ``"spreads"`` over the source's.
        ax: where to.
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
