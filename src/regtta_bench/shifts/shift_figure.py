"""Picture of the suite: the gain over the source model by row and shift, as a heat map."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regtta.report.figures import GREY, SMALL_FONT, add_caption, new_figure, set_title
from regtta_bench.shifts.results import SuiteScores
from regtta_bench.shifts.rows import SOURCE
from regtta_bench.shifts.shift_tables import HALVES, group_shifts
from regtta_bench.shifts.suite import Shift

LIMIT = 0.5  # gain at which the colours end; larger ones are written into their cells
_COLOURS = "RdBu"  # red is worse than the source model, blue is better; both can be told without red and green
_CELL_WIDTH, _CELL_HEIGHT = 0.42, 0.19  # inches
_LABEL_WIDTH, _HEADER_HEIGHT, _FOOTER_HEIGHT = 2.3, 1.5, 0.9  # inches
_FONT = 6.0  # points, of the numbers in the cells
_DARK = 0.6 * LIMIT  # gain above which a number is white on its cell


def draw_gains(scores: SuiteScores) -> Figure:
    """Return a figure with one panel per half: shifts from top to bottom, rows from left to right.

    The number in a cell is the gain in offline R², clipped at −1; × marks a run that diverged.
    """
    rows = [row for row in scores.rows if row != SOURCE]
    panels = [shifts for half in HALVES if (shifts := _ordered(scores.shifts, half))]
    width = len(panels) * (_LABEL_WIDTH + _CELL_WIDTH * len(rows))
    height = _HEADER_HEIGHT + _FOOTER_HEIGHT + _CELL_HEIGHT * max(map(len, panels), default=1)
    figure = new_figure(max(width, 5.0), height)
    axes = np.atleast_1d(figure.subplots(1, max(len(panels), 1)))
    for ax, shifts in zip(axes, panels, strict=False):
        _draw_half(ax, scores, shifts, rows)
    colours = ScalarMappable(Normalize(-LIMIT, LIMIT), _COLOURS)
    bar = figure.colorbar(
        colours, ax=list(axes), orientation="horizontal", extend="both", shrink=0.4, aspect=40, pad=0.01
    )
    bar.set_label("R² less the source model's", fontsize=SMALL_FONT)
    bar.ax.tick_params(labelsize=SMALL_FONT)
    add_caption(
        figure,
        "Offline R² clipped at −1, mean over source models, minus that of the source model without adaptation. ×: a "
        "run diverged, which counts as −1. Blank: the method does not fit, or was not run.",
    )
    return figure


def _ordered(shifts: Sequence[Shift], half: str) -> list[Shift]:
    return [shift for group in group_shifts(shifts) for shift in group if shift.half == half]


def _draw_half(ax: Axes, scores: SuiteScores, shifts: Sequence[Shift], rows: Sequence[str]) -> None:
    gains = np.array([[_gain(scores, shift, row) for row in rows] for shift in shifts])
    ax.imshow(gains, cmap=_COLOURS, vmin=-LIMIT, vmax=LIMIT, aspect="auto", interpolation="nearest")
    for (line, column), gain in np.ndenumerate(gains):
        if not np.isnan(gain):
            score = scores.score(shifts[line].name, rows[column])
            text = f"{gain:+.2f}".replace("-", "−") + ("×" if score is not None and score.diverged else "")
            colour = "white" if abs(gain) > _DARK else "black"
            ax.text(column, line, text, ha="center", va="center", fontsize=_FONT, color=colour)
    ax.set_xticks(range(len(rows)), rows, rotation=55, ha="left", rotation_mode="anchor", fontsize=SMALL_FONT)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(shifts)), [shift.name for shift in shifts], fontsize=SMALL_FONT)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    for index, (above, below) in enumerate(pairwise(shifts)):
        if (above.kind, above.data) != (below.kind, below.data):
            wide = above.kind != below.kind
            ax.axhline(index + 0.5, color=GREY if wide else "white", linewidth=1.4 if wide else 1.0)
    _label_kinds(ax, shifts)
    set_title(ax, f"{shifts[0].half} half")


def _label_kinds(ax: Axes, shifts: Sequence[Shift]) -> None:
    """Write the kind of the shifts at the right edge, beside their lines."""
    for kind in dict.fromkeys(shift.kind for shift in shifts):
        lines = [index for index, shift in enumerate(shifts) if shift.kind == kind]
        ax.text(
            1.005, (lines[0] + lines[-1]) / 2, kind, transform=ax.get_yaxis_transform(), rotation=270, va="center",
            ha="left", fontsize=SMALL_FONT, color=GREY,
        )  # fmt: skip


def _gain(scores: SuiteScores, shift: Shift, row: str) -> float:
    gains = scores.gains(shift.name, row)
    return float(np.mean(list(gains.values()))) if gains else float("nan")
