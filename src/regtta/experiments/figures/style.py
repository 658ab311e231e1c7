"""How all figures look: told apart in grey and by the colour-blind, made without pyplot, whose state is the user's."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from regtta.errors import OptionError

SMALL, NORMAL = 8.0, 9.0  # points
GREY = "#555555"
WIDTH, HEIGHT, DPI = 4.6, 3.2, 200  # inches of a single panel

LineStyle = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """A colour with a marker and a line style that tell it apart where colours cannot."""

    colour: str
    marker: str
    line: LineStyle


# Colours of Okabe and Ito, which the colour-blind can tell apart; yellow is left out, too light for lines.
LOOKS: tuple[Look, ...] = (
    Look("#000000", "X", "-"),
    Look("#D55E00", "s", (0, (6, 2))),
    Look("#56B4E9", "^", (0, (1, 1.2))),
    Look("#0072B2", "o", "-"),
    Look("#009E73", "D", (0, (4, 1.5, 1, 1.5))),
    Look("#CC79A7", "v", (0, (3, 1))),
    Look("#E69F00", "P", (0, (6, 1, 1, 1, 1, 1))),
)
SOURCE_LOOK, TARGET_LOOK = Look("#0072B2", "o", "-"), Look("#E69F00", "^", (0, (6, 2)))


def look_of(place: int) -> Look:
    """The look of the ``place``-th thing drawn, from 0; after the seventh they begin anew."""
    return LOOKS[place % len(LOOKS)]


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """An empty figure whose parts make room for each other.

    Args:
        width: inches.
        height: inches.
    """
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_of(axes: Axes) -> Figure:
    """The whole figure that ``axes`` is part of."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise OptionError("Expected axes on a figure, found some that were removed from theirs.")
    return figure


def prepared(ax: Axes | None, *, x: str, y: str) -> Axes:
    """``ax``, or the one of a new figure, with labels ``x`` and ``y`` and no lines that mean nothing."""
    axes = new_figure().add_subplot() if ax is None else ax
    axes.set_xlabel(x, fontsize=NORMAL)
    axes.set_ylabel(y, fontsize=NORMAL)
    axes.tick_params(which="both", labelsize=SMALL)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def titled(axes: Axes, text: str) -> None:
    """A short title above ``axes``."""
    axes.set_title(text, fontsize=NORMAL)


def keyed(axes: Axes, **where: Any) -> None:
    """The legend of ``axes``, where there is anything to name."""
    if not axes.get_legend_handles_labels()[0]:
        return
    # A white ground, since lines may pass behind it.
    axes.legend(fontsize=SMALL, facecolor="white", edgecolor="none", framealpha=0.85, **where)


def caption(figure: Figure, text: str) -> Text:
    """Write ``text`` under everything: what is shown, counts, seeds. Long lines are broken to fit the figure.

    Example:
        >>> figure = new_figure()
        >>> caption(figure, "897 target digits, seed 0.").get_text()
        '897 target digits, seed 0.'
    """
    letters = int(figure.get_figwidth() * 72 / (SMALL * 0.6))
    lines: Sequence[str] = [line for part in text.splitlines() for line in textwrap.wrap(part, letters)]
    return figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=SMALL, color="#333333", linespacing=1.3)
