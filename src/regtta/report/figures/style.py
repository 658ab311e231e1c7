"""Style shared by all figures, and writing them to files."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from regtta.errors import OptionError
from regtta.persistence import atomic_write, check_not_existing

SMALL_FONT, NORMAL_FONT = 8.0, 9.0  # points
GREY = "#555555"
WIDTH, HEIGHT, FIGURE_DPI = 4.6, 3.2, 200  # inches and dots per inch of a single panel

LineStyle = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class SeriesStyle:
    """Colour with a marker and a line style that distinguish it without colour."""

    colour: str
    marker: str
    line: LineStyle


# Colour-blind-safe palette of Okabe and Ito, without yellow, which is too light for lines.
SERIES_STYLES: tuple[SeriesStyle, ...] = (
    SeriesStyle("#000000", "X", "-"),
    SeriesStyle("#D55E00", "s", (0, (6, 2))),
    SeriesStyle("#56B4E9", "^", (0, (1, 1.2))),
    SeriesStyle("#0072B2", "o", "-"),
    SeriesStyle("#009E73", "D", (0, (4, 1.5, 1, 1.5))),
    SeriesStyle("#CC79A7", "v", (0, (3, 1))),
    SeriesStyle("#E69F00", "P", (0, (6, 1, 1, 1, 1, 1))),
)
SOURCE_STYLE, TARGET_STYLE = SeriesStyle("#0072B2", "o", "-"), SeriesStyle("#E69F00", "^", (0, (6, 2)))


def series_style(index: int) -> SeriesStyle:
    """Return the style of the series with ``index``; the seven styles repeat."""
    return SERIES_STYLES[index % len(SERIES_STYLES)]


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """Return an empty figure with constrained layout.

    Args:
        width: width in inches.
        height: height in inches.
    """
    figure = Figure(figsize=(width, height), dpi=FIGURE_DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def root_figure(axes: Axes) -> Figure:
    """Return the root figure of ``axes``."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise OptionError("Expected axes on a figure, found axes that were removed from theirs.")
    return figure


def prepare_axes(ax: Axes | None, *, x: str, y: str) -> Axes:
    """Return ``ax``, or the axes of a new figure, with labels ``x`` and ``y`` and without top and right spines."""
    axes = new_figure().add_subplot() if ax is None else ax
    axes.set_xlabel(x, fontsize=NORMAL_FONT)
    axes.set_ylabel(y, fontsize=NORMAL_FONT)
    axes.tick_params(which="both", labelsize=SMALL_FONT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def set_title(axes: Axes, text: str) -> None:
    """Set the title of ``axes``."""
    axes.set_title(text, fontsize=NORMAL_FONT)


def add_legend(axes: Axes, **placement: Any) -> None:
    """Add a legend to ``axes`` if it has labelled artists."""
    if not axes.get_legend_handles_labels()[0]:
        return
    # A white background, since lines may pass behind the legend.
    axes.legend(fontsize=SMALL_FONT, facecolor="white", edgecolor="none", framealpha=0.85, **placement)


def add_caption(figure: Figure, text: str) -> Text:
    """Write ``text`` as a caption below the figure, wrapped to its width.

    Example:
        >>> figure = new_figure()
        >>> add_caption(figure, "897 target digits, seed 0.").get_text()
        '897 target digits, seed 0.'
    """
    letters = int(figure.get_figwidth() * 72 / (SMALL_FONT * 0.6))
    lines: Sequence[str] = [line for part in text.splitlines() for line in textwrap.wrap(part, letters)]
    return figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=SMALL_FONT, color="#333333", linespacing=1.3)


FIGURE_FORMATS = (".png", ".svg", ".pdf")


def save_figure(figure: Figure, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write ``figure`` atomically to ``path`` as PNG, SVG or PDF, according to the suffix.

    Args:
        figure: the figure to write; for an Axes, pass ``axes.figure``.
        path: path that ends in ``.png``, ``.svg`` or ``.pdf``.
        overwrite: replace an existing file if True.

    Returns:
        The path.

    Example:
        >>> save_figure(Figure(), "spectrum.jpg")
        Traceback (most recent call last):
        regtta.errors.OptionError: Expected a path that ends in .png, .svg or .pdf, found 'spectrum.jpg'.
    """
    kind = Path(path).suffix.lower()
    if kind not in FIGURE_FORMATS:
        raise OptionError(f"Expected a path that ends in .png, .svg or .pdf, found {str(path)!r}.")
    path = check_not_existing(path, overwrite=overwrite)
    with atomic_write(path) as draft:
        figure.savefig(draft, format=kind.removeprefix("."))
    return path
