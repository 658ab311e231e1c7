"""Histograms of feature dimensions and gradient norms, and plots of the distances to a Gaussian."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regtta.experiments.analysis.gradients import GradientNorms
from regtta.experiments.analysis.histograms import FeatureHistograms, Histogram
from regtta.experiments.analysis.normality import NormalityReport
from regtta.experiments.figures.style import (
    GREY,
    LOOKS,
    NORMAL,
    SMALL,
    SOURCE_LOOK,
    TARGET_LOOK,
    caption,
    keyed,
    new_figure,
    prepared,
    titled,
)

_FILL = "#BFD9EA"  # light enough for the Gaussian to be visible on it
_CURVE_POINTS = 200


def draw_histogram(histogram: Histogram, ax: Axes | None = None) -> Axes:
    """Plot the histogram of one dimension and the Gaussian of the same mean and variance."""
    axes = prepared(ax, x="value (feature units)", y="density")
    axes.stairs(
        histogram.density, histogram.edges, fill=True, facecolor=_FILL, edgecolor=SOURCE_LOOK.colour, linewidth=0.8
    )
    if histogram.sd > 0:
        _draw_gaussian(histogram, axes)
    axes.set_title(histogram.name, fontsize=NORMAL, pad=16)
    note = f"skew {histogram.skewness:+.2f}, kurt {histogram.kurtosis:+.2f}, KS {histogram.distance:.2f}"
    axes.text(0.5, 1.03, note.replace("-", "−"), transform=axes.transAxes, ha="center", fontsize=SMALL, color=GREY)
    return axes


def _draw_gaussian(histogram: Histogram, axes: Axes) -> None:
    reach = 3.5 * histogram.sd
    x = np.linspace(
        min(histogram.edges[0], histogram.mean - reach), max(histogram.edges[-1], histogram.mean + reach), _CURVE_POINTS
    )
    height = np.exp(-(((x - histogram.mean) / histogram.sd) ** 2) / 2) / (histogram.sd * np.sqrt(2 * np.pi))
    axes.plot(x, height, color=LOOKS[1].colour, linewidth=1.5, label="Gaussian")


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
    caption(
        figure,
        f"Bars: {report.count} samples. Line: the Gaussian of their own mean and variance. Dimensions drawn with seed "
        f"{report.seed}. Skew(ness), excess kurt(osis) and Kolmogorov–Smirnov distance KS are 0 for a Gaussian.",
    )
    return figure


def draw_normality(report: NormalityReport, ax: Axes | None = None) -> Axes:
    """Plot the sorted distances to a Gaussian of raw and projected dimensions; the lower curve is the more Gaussian."""
    axes = prepared(ax, x="share of the dimensions (no unit)", y="KS distance to a Gaussian (no unit)")
    for shapes, summary, look, name in (
        (report.raw, report.raw_summary, TARGET_LOOK, "raw"),
        (report.projected, report.projected_summary, SOURCE_LOOK, "projected"),
    ):
        count = summary.dimensions
        axes.plot(
            (np.arange(count) + 0.5) / max(count, 1), np.sort(shapes.distance), color=look.colour, linestyle=look.line,
            linewidth=1.5, marker=look.marker, markersize=4, markevery=max(1, count // 8),
            label=f"{count} {name}, median {summary.distance:.2f}",
        )  # fmt: skip
    label = f"5 % level of a true Gaussian, N = {report.count}"
    axes.axhline(report.critical, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1)
    titled(axes, f"projected nearer to a Gaussian: chance {report.nearer:.2f}")
    keyed(axes, loc="best")
    return axes


def draw_gradient_norms(report: GradientNorms, ax: Axes | None = None) -> Axes:
    """Plot the histogram of the gradient norms of the raw dimensions."""
    axes = prepared(ax, x="gradient norm s$_d$ (no unit)", y="raw dimensions (count)")
    axes.stairs(report.counts, report.edges, fill=True, facecolor=_FILL, edgecolor=SOURCE_LOOK.colour, linewidth=0.8)
    axes.set_xlim(0, 1)
    titled(axes, f"{len(report.norms)} raw dimensions, subspace of {report.k}")
    return axes
