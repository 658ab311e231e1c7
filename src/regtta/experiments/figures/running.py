"""Plots of R² along streams, one panel per kind of stream."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.experiments.analysis.running_scores import RunningScores
from regtta.experiments.figures.style import GREY, NORMAL, SMALL, caption, look_of, new_figure, prepared, titled

_ACROSS = 3  # panels per row
_LOOKS = (0, 1, 3)  # black, orange, blue: easy to tell apart, also for the colour-blind


def draw_running(scores: RunningScores, ax: Axes | None = None) -> Axes:
    """Plot R² along one kind of stream, one line per method.

    Args:
        scores: scores to plot.
        ax: axes to draw on; a new figure by default.
    """
    axes = prepared(ax, x="share of the stream", y="R² in the slice")
    titled(axes, scores.kind)
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    for place, (name, values) in enumerate(scores.lines.items()):
        look = look_of(_LOOKS[place % len(_LOOKS)])
        middles = (np.arange(len(values)) + 0.5) / len(values)
        axes.plot(
            middles, values, color=look.colour, linestyle=look.line, marker=look.marker, markersize=3.5,
            markevery=(place, 4), linewidth=1.4, label=name,
        )  # fmt: skip
    axes.set_xlim(0, 1)
    return axes


def running_panels(curves: Sequence[RunningScores], about: str) -> Figure:
    """Plot one panel per kind of stream, with a shared legend and a caption.

    Args:
        curves: scores of each kind of stream.
        about: text of the caption.
    """
    if not curves:
        raise OptionError("Expected scores along at least one kind of stream, found none.")
    across = min(_ACROSS, len(curves))
    down = -(-len(curves) // across)
    figure = new_figure(2.7 * across + 0.6, 2.1 * down + 0.9)
    places = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
    for place, axes in enumerate(places):
        if place >= len(curves):
            axes.set_axis_off()
            continue
        draw_running(curves[place], axes)
        axes.tick_params(labelbottom=place + across >= len(curves))
        axes.set_xlabel("share of the stream" if place + across >= len(curves) else "", fontsize=NORMAL)
        axes.set_ylabel("R² in the slice" if place % across == 0 else "", fontsize=NORMAL)
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=SMALL, frameon=False)
    caption(figure, about)
    return figure
