"""Figures of the source subspace: spectrum, significance, reconstruction error."""

import numpy as np
from matplotlib.axes import Axes

from regtta.report.analysis import Reconstruction, SubspaceReport
from regtta.report.figures.style import (
    GREY,
    NORMAL_FONT,
    SERIES_STYLES,
    SMALL_FONT,
    SOURCE_STYLE,
    add_legend,
    prepare_axes,
    series_style,
    set_title,
)

_MAX_LINEAR = 30  # number of directions up to which the x axis is linear


def draw_spectrum(report: SubspaceReport, ax: Axes | None = None) -> Axes:
    """Plot the variances ``λ_d``, the cumulative share of variance and the rank.

    A long spectrum spans many orders of magnitude, so both of its scales are logarithmic. The share is drawn on twin
    axes on the right, the last axes of the figure.
    """
    axes = prepare_axes(ax, x="leading directions n", y="variance of the n-th, λ$_n$ (feature units²)")
    numbers = np.arange(1, report.dimensions + 1)
    axes.plot(numbers, report.variances, color=SOURCE_STYLE.colour, linewidth=1.6, label="variance λ$_n$")
    if report.dimensions > _MAX_LINEAR:
        axes.set_xscale("log")
    if report.rank > 0:
        # Variances far below the last one within the rank are rounding errors and would dominate the scale.
        below = 100 if report.rank < report.dimensions else 3
        axes.set_ylim(report.variances[report.rank - 1] / below, report.variances[0] * 3)
        axes.set_yscale("log")
    last = max(report.rank, 1)  # a logarithmic axis starts at 1
    rank = axes.axvline(last, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=f"rank {report.rank}")
    shares = axes.twinx()
    line = shares.plot(
        numbers,
        report.cumulative,
        color=SERIES_STYLES[1].colour,
        linestyle=SERIES_STYLES[1].line,
        linewidth=1.6,
        label="share of the first n",
    )
    shares.set_ylim(0, 1.03)
    shares.set_ylabel("share of all variance (no unit)", fontsize=NORMAL_FONT)
    shares.tick_params(labelsize=SMALL_FONT)
    shares.spines["top"].set_visible(False)
    # Above the axes, since inside them a spectrum could run through the legend.
    shares.legend(
        handles=[axes.lines[0], *line, rank], fontsize=SMALL_FONT, frameon=False, ncols=3, columnspacing=1.2,
        loc="lower center", bbox_to_anchor=(0.5, 0.99),
    )  # fmt: skip
    title = f"{report.valid_dimensions} of {report.dimensions} dimensions vary, rank {report.rank}, N = {report.count}"
    axes.set_title(title, fontsize=NORMAL_FONT, pad=22)
    return axes


def draw_significance(report: SubspaceReport, ax: Axes | None = None) -> Axes:
    """Plot the weights ``α_d`` against the variances ``λ_d``; directions that carry the output are filled.

    Directions beyond the rank are not drawn, since their variance is a rounding error. The correlation is that of the
    report, over all k directions.
    """
    axes = prepare_axes(
        ax, x="variance λ$_d$ (feature units²)", y="weight α$_d$ = 1 + ‖W v$_d$‖\n(output per feature unit)"
    )
    axes.set_xscale("log")
    shown = min(report.k, report.rank)
    carrying = np.isin(np.arange(shown), report.carrying)
    style = SOURCE_STYLE
    for chosen, face, label in (
        (carrying, style.colour, f"carries the output ({report.share:.0%} of its variance)"),
        (~carrying, "none", "other directions"),
    ):
        if chosen.any():
            axes.scatter(
                report.variances[:shown][chosen], report.weights[:shown][chosen], s=22, marker=style.marker,
                facecolors=face, edgecolors=style.colour, linewidths=1, label=f"{label}: {int(chosen.sum())}",
            )  # fmt: skip
    beyond = "" if shown == report.k else f", {shown} drawn"
    set_title(axes, f"Pearson's r = {report.correlation:.2f} over {report.k} directions{beyond}".replace("-", "−"))
    add_legend(axes, loc="best")
    return axes


_MARKERS_PER_CURVE = 8  # markers per curve


def draw_reconstruction(report: Reconstruction, ax: Axes | None = None) -> Axes:
    """Plot the mean error against the number of directions, with the rank marked.

    A low error means that the features lie in the source subspace. A method whose features are not finite is only
    listed in the legend.
    """
    axes = prepare_axes(ax, x="source directions n", y="reconstruction error ‖z$_r$ − z‖ (feature units)")
    every = max(1, len(report.bases) // _MARKERS_PER_CURVE)
    for index, (name, errors) in enumerate(report.errors.items()):
        style = series_style(index)
        axes.plot(
            report.bases, errors, color=style.colour, linestyle=style.line, linewidth=1.5, marker=style.marker,
            # Markers are offset per curve, so that curves that coincide stay visible.
            markersize=4.5, markevery=(index % every, every),
            label=name if np.isfinite(errors).all() else f"{name} (not finite)",
        )  # fmt: skip
    axes.axvline(report.rank, color=GREY, linewidth=1, linestyle=(0, (1, 2)), label=f"rank {report.rank}")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    counts = sorted(set(report.counts.values()))
    set_title(axes, f"mean over {' or '.join(map(str, counts))} samples")
    add_legend(axes, loc="upper right")
    return axes
