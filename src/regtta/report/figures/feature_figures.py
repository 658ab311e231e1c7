"""Figures of features: clouds, histograms, shifts."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.options import check_choice, did_you_mean
from regtta.report.analysis import Clouds, FeatureHistograms, GradientNorms, Histogram, NormalityReport, ShiftReport
from regtta.report.figures.style import (
    GREY,
    NORMAL_FONT,
    SERIES_STYLES,
    SMALL_FONT,
    SOURCE_STYLE,
    TARGET_STYLE,
    add_caption,
    add_legend,
    new_figure,
    prepare_axes,
    series_style,
    set_title,
)

_PANELS_PER_ROW = 3  # panels per row
_PANEL = 2.9  # inches


def draw_cloud(clouds: Clouds, method: str, ax: Axes | None = None) -> Axes:
    """Plot the source points and the target points after ``method``, with their distance if there is one."""
    if method not in clouds.targets:
        raise OptionError(
            f"Expected method to be one of {sorted(clouds.targets)}, found {method!r}."
            + did_you_mean(method, clouds.targets)
        )
    axes = prepare_axes(ax, x=clouds.axes[0], y=clouds.axes[1])
    for points, style, name in (
        (clouds.source, SOURCE_STYLE, "source"),
        (clouds.targets[method], TARGET_STYLE, "target"),
    ):
        axes.scatter(
            points[:, 0], points[:, 1], s=7, marker=style.marker, color=style.colour, alpha=0.55, linewidths=0,
            label=f"{name}, {len(points)}",
        )  # fmt: skip
    distance = "" if clouds.transport is None else f": OT {clouds.transport.distances[method]:#.3g}"
    set_title(axes, method + distance)
    return axes


def cloud_panels(clouds: Clouds) -> Figure:
    """Plot one panel per method, with shared axis limits so that the clouds are comparable."""
    methods = list(clouds.targets)
    columns = 2 if len(methods) == 4 else min(max(len(methods), 1), _PANELS_PER_ROW)
    rows = max(1, -(-len(methods) // columns))
    figure = new_figure(max(_PANEL * columns, 4.0), _PANEL * rows + 0.7)
    grid = figure.add_gridspec(rows, columns)
    first: Axes | None = None
    for index, method in enumerate(methods):
        row, column = divmod(index, columns)
        axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
        draw_cloud(clouds, method, axes)
        if first is None:
            first = axes
            add_legend(axes, loc="best", markerscale=2)
        if column > 0:
            axes.set_ylabel("")
        if index + columns < len(methods):
            axes.set_xlabel("")
    add_caption(figure, _caption_text(clouds))
    return figure


def _caption_text(clouds: Clouds) -> str:
    text = f"Circles: source; triangles: target after each method. Points drawn with seed {clouds.seed}."
    if clouds.transport is None:
        return text + " The map was learned on the source alone, before adapting."
    transport = clouds.transport
    return (
        f"{text} OT: optimal-transport distance between them over the first {transport.components} source directions "
        f"({transport.cost}); {transport.floor:#.3g} between two halves of the source."
    )


_FILL = "#BFD9EA"  # light enough for the Gaussian to be visible on it
_CURVE_POINTS = 200


def draw_histogram(histogram: Histogram, ax: Axes | None = None) -> Axes:
    """Plot the histogram of one dimension and the Gaussian of the same mean and variance."""
    axes = prepare_axes(ax, x="value (feature units)", y="density")
    axes.stairs(
        histogram.density, histogram.edges, fill=True, facecolor=_FILL, edgecolor=SOURCE_STYLE.colour, linewidth=0.8
    )
    if histogram.sd > 0:
        _draw_gaussian(histogram, axes)
    axes.set_title(histogram.name, fontsize=NORMAL_FONT, pad=16)
    note = f"skew {histogram.skewness:+.2f}, kurt {histogram.kurtosis:+.2f}, KS {histogram.distance:.2f}"
    axes.text(0.5, 1.03, note.replace("-", "−"), transform=axes.transAxes, ha="center", fontsize=SMALL_FONT, color=GREY)
    return axes


def _draw_gaussian(histogram: Histogram, axes: Axes) -> None:
    reach = 3.5 * histogram.sd
    x = np.linspace(
        min(histogram.edges[0], histogram.mean - reach), max(histogram.edges[-1], histogram.mean + reach), _CURVE_POINTS
    )
    height = np.exp(-(((x - histogram.mean) / histogram.sd) ** 2) / 2) / (histogram.sd * np.sqrt(2 * np.pi))
    axes.plot(x, height, color=SERIES_STYLES[1].colour, linewidth=1.5, label="Gaussian")


def histogram_grid(report: FeatureHistograms) -> Figure:
    """Plot the raw dimensions above the projected ones, each with its fitted Gaussian."""
    columns = max(len(report.raw), len(report.projected), 1)
    figure = new_figure(2.7 * columns, 4.8)
    grid = figure.add_gridspec(2, columns)
    for row, histograms in enumerate((report.raw, report.projected)):
        for column, histogram in enumerate(histograms):
            axes = draw_histogram(histogram, figure.add_subplot(grid[row, column]))
            if column > 0:
                axes.set_ylabel("")
    add_caption(
        figure,
        f"Bars: {report.count} samples. Line: the Gaussian of their own mean and variance. Dimensions drawn with seed "
        f"{report.seed}. Skew(ness), excess kurt(osis) and Kolmogorov–Smirnov distance KS are 0 for a Gaussian.",
    )
    return figure


def draw_normality(report: NormalityReport, ax: Axes | None = None) -> Axes:
    """Plot the sorted distances to a Gaussian of raw and projected dimensions; the lower curve is the more Gaussian."""
    axes = prepare_axes(ax, x="share of the dimensions (no unit)", y="KS distance to a Gaussian (no unit)")
    for shapes, summary, style, name in (
        (report.raw, report.raw_summary, TARGET_STYLE, "raw"),
        (report.projected, report.projected_summary, SOURCE_STYLE, "projected"),
    ):
        count = summary.dimensions
        axes.plot(
            (np.arange(count) + 0.5) / max(count, 1), np.sort(shapes.distance), color=style.colour,
            linestyle=style.line, linewidth=1.5, marker=style.marker, markersize=4, markevery=max(1, count // 8),
            label=f"{count} {name}, median {summary.distance:.2f}",
        )  # fmt: skip
    label = f"5 % level of a true Gaussian, N = {report.count}"
    axes.axhline(report.critical, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1)
    set_title(axes, f"projected nearer to a Gaussian: chance {report.nearer:.2f}")
    add_legend(axes, loc="best")
    return axes


def draw_gradient_norms(report: GradientNorms, ax: Axes | None = None) -> Axes:
    """Plot the histogram of the gradient norms of the raw dimensions."""
    axes = prepare_axes(ax, x="gradient norm s$_d$ (no unit)", y="raw dimensions (count)")
    axes.stairs(report.counts, report.edges, fill=True, facecolor=_FILL, edgecolor=SOURCE_STYLE.colour, linewidth=0.8)
    axes.set_xlim(0, 1)
    set_title(axes, f"{len(report.norms)} raw dimensions, subspace of {report.k}")
    return axes


_MAX_DIRECTIONS = 30  # maximum number of directions, so that markers do not overlap
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
    axes = prepare_axes(ax, x="source direction, from 0", y=_LABELS[moment])
    axes.axhline(_LEVELS[moment], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="source")
    values = getattr(report, moment)
    for index, (name, column) in enumerate(values.items()):
        style = series_style(3 * index)  # black crosses, then blue circles
        shown = column[:_MAX_DIRECTIONS]
        axes.plot(
            np.arange(len(shown)), shown, color=style.colour, marker=style.marker, markersize=5, linestyle="none",
            markerfacecolor="none" if index == 0 else style.colour, label=f"{name}, N = {report.counts[name]}",
        )  # fmt: skip
    directions = len(next(iter(values.values())))
    set_title(axes, f"first {min(_MAX_DIRECTIONS, directions)} of {directions} directions")
    add_legend(axes, loc="best")
    return axes
