"""Figure of the scores of methods side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from regtta.errors import OptionError
from regtta.report.analysis import AnalysisResult, Array
from regtta.report.figures import GREY, SOURCE_STYLE, TARGET_STYLE, add_legend, prepare_axes, series_style, set_title


@dataclass(frozen=True, eq=False)
class MethodScores(AnalysisResult):
    """Scores by method and stream.

    Attributes:
        score: name of the score, such as ``"R²"``.
        streams: names of the S streams, in order.
        means: mean scores by method, each (S,); NaN if a run diverged or is missing.
        sds: standard deviations over source models by method, each (S,); NaN if unknown.
        published: published scores by method, each (S,); NaN if there are none.
        sources: number of source models.
    """

    score: str
    streams: tuple[str, ...]
    means: Mapping[str, Array]
    sds: Mapping[str, Array]
    published: Mapping[str, Array]
    sources: int


_FAR = 4.0  # median absolute deviations beyond which a score is an outlier and does not scale the axis


def draw_methods(report: MethodScores, ax: Axes | None = None, *, stream: int = 0) -> Axes:
    """Plot the scores of all methods on one stream, one row per method; outliers are printed at the edge.

    Args:
        report: scores to plot.
        ax: axes to draw on; a new figure by default.
        stream: index of the stream.
    """
    if not 0 <= stream < len(report.streams):
        raise OptionError(f"Expected stream between 0 and {len(report.streams) - 1}, found {stream!r}.")
    axes = prepare_axes(ax, x=f"{report.score}, {report.streams[stream]}", y="")
    names = list(report.means)
    places = np.arange(len(names))[::-1]
    means, sds, published = (
        np.array([column[name][stream] for name in names]) for column in (report.means, report.sds, report.published)
    )
    low, high = _bulk(np.concatenate([means, published]))
    inside = (means >= low) & (means <= high)
    axes.errorbar(
        means[inside], places[inside], xerr=np.nan_to_num(sds[inside]), fmt=SOURCE_STYLE.marker, markersize=5,
        color=SOURCE_STYLE.colour, elinewidth=1.2, label=f"mean ± sd, {report.sources} source models",
    )  # fmt: skip
    printed = (published >= low) & (published <= high)
    if printed.any():
        axes.plot(
            published[printed], places[printed], "D", markersize=5, markerfacecolor="none",
            markeredgecolor=TARGET_STYLE.colour, linestyle="none", label="published",
        )  # fmt: skip
    for place, mean, other in zip(places, means, published, strict=True):
        words = ["diverged"] if np.isnan(mean) else [] if low <= mean <= high else [f"{mean:.2f}"]
        words += [] if np.isnan(other) or low <= other <= high else [f"published {other:.2f}"]
        if words:
            text = ", ".join(words).replace("-", "−")
            axes.text(0.01, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8, color=GREY)
    axes.set_yticks(places, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    add_legend(axes, loc="upper center", bbox_to_anchor=(0.4, 1.16), ncols=2)
    return axes


def draw_streams(report: MethodScores, ax: Axes | None = None) -> Axes:
    """Plot all streams along the x axis, one marker per method; outliers are arrows with their value."""
    axes = prepare_axes(ax, x="", y=report.score)
    low, high = _bulk(np.concatenate(list(report.means.values())))
    x = np.arange(len(report.streams))
    width = 0.6 / max(1, len(report.means))
    for place, (name, means) in enumerate(report.means.items()):
        look = series_style(place)
        shift = (place - (len(report.means) - 1) / 2) * width
        axes.errorbar(
            x + shift, means, yerr=np.nan_to_num(report.sds[name]), fmt=look.marker, color=look.colour, markersize=5,
            elinewidth=1, label=name,
        )  # fmt: skip
        for column in np.flatnonzero((means < low) | (means > high)):
            # Outliers are often the main result, so they are shown at the edge with their value.
            below = means[column] < low
            axes.annotate(
                f"{means[column]:.2f}".replace("-", "−"), (x[column] + shift, low if below else high),
                xytext=(0, 14 if below else -20),
                textcoords="offset points", fontsize=8, color=look.colour, ha="right",
                arrowprops={"arrowstyle": "->", "color": look.colour},
            )  # fmt: skip
    axes.set_ylim(low, high)
    axes.set_xticks(x, report.streams)
    set_title(axes, f"mean ± sd over {report.sources} source models")
    add_legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes


def _bulk(values: np.ndarray) -> tuple[float, float]:
    """Return axis limits that cover ``values`` with some margin, outliers excluded."""
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return 0.0, 1.0
    middle = float(np.median(finite))
    reach = _FAR * max(float(np.median(np.abs(finite - middle))), 1e-3)
    near = finite[np.abs(finite - middle) <= reach]
    room = 0.08 * max(float(near.max() - near.min()), 1e-3)
    return float(near.min()) - room, float(near.max()) + room
