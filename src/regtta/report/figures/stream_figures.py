"""Figures of a stream: signals and running scores over batches, predictions and outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.options import check_choice
from regtta.report.analysis import Array, OutputReport, PredictionReport, RunningScores, StreamRecord
from regtta.report.figures.style import (
    GREY,
    NORMAL,
    SMALL,
    SOURCE_LOOK,
    caption,
    keyed,
    look_of,
    new_figure,
    prepared,
    titled,
)

_REJECTED = "#D55E00"


@dataclass(frozen=True)
class _Quantity:
    """Axis label of a quantity, and its reference value under no shift, if there is one."""

    label: str
    level: float | None = None


QUANTITIES: Mapping[str, _Quantity] = MappingProxyType(
    {
        "loss": _Quantity("loss"),
        "gradient_norm": _Quantity("gradient\nnorm"),
        "displacement": _Quantity("displacement\n(share of ‖θ₀‖)"),
        "shift": _Quantity("mean shift\n(source sd)", level=0),
        "spread": _Quantity("sd of batch\n/ of source", level=1),
        "online_r2": _Quantity("online R²\nso far"),
    }
)


def draw_stream(record: StreamRecord, quantity: str, ax: Axes | None = None) -> Axes:
    """Plot one quantity over the steps, one line per direction for shift and spread; crosses mark rejected batches.

    Args:
        record: record of the stream.
        quantity: ``"loss"``, ``"gradient_norm"``, ``"displacement"``, ``"shift"``, ``"spread"`` or ``"online_r2"``.
        ax: axes to draw on; a new figure by default.
    """
    check_choice("quantity", quantity, QUANTITIES.keys())
    about = QUANTITIES[quantity]
    axes = prepared(ax, x="batch, from 0", y=about.label)
    values = _columns(record, quantity)
    steps = np.arange(len(values))
    if about.level is not None:
        axes.axhline(about.level, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    for place, column in enumerate(values.T):
        look = look_of(3 if values.shape[1] == 1 else place)
        axes.plot(
            steps, column, color=look.colour, linestyle=look.line, linewidth=1.2, marker=look.marker, markersize=3.5,
            markevery=max(1, len(steps) // 12), label=f"direction {place}" if values.shape[1] > 1 else None,
        )  # fmt: skip
    rejected = steps[~record.learned]
    if len(rejected):
        # On the lower edge of the axes, whatever their scale.
        axes.plot(
            rejected, np.zeros(len(rejected)), "x", color=_REJECTED, markersize=5, transform=axes.get_xaxis_transform(),
            clip_on=False,
        )  # fmt: skip
    return axes


def stream_panels(record: StreamRecord, quantities: Sequence[str] | None = None) -> Figure:
    """Plot several quantities over shared steps, one panel each; by default all with finite values."""
    has = [name for name in QUANTITIES if np.isfinite(_columns(record, name)).any()]
    shown = has if quantities is None else list(quantities)
    if not shown:
        raise OptionError(f"Expected at least one quantity to draw, found none; this stream has {has}.")
    figure = new_figure(6.4, 1.25 * len(shown) + 0.9)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(shown, panels, strict=True):
        draw_stream(record, name, axes)
        axes.yaxis.label.set_fontsize(SMALL)
        axes.label_outer()
    figure.align_ylabels()
    directed = [axes for name, axes in zip(shown, panels, strict=True) if name in ("shift", "spread")]
    if directed and record.shift.shape[1] > 1:
        keyed(directed[0], loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption(figure, _about(record))
    return figure


def _columns(record: StreamRecord, quantity: str) -> Array:
    """Return the quantity as (S, lines)."""
    values: Array = getattr(record, quantity)
    return values if values.ndim == 2 else values[:, None]


def _about(record: StreamRecord) -> str:
    rejected = int((~record.learned).sum())
    reasons = sorted({reason for reason in record.reasons if reason})
    text = f"{record.method}: {len(record.sizes)} batches, {int(record.sizes.sum())} samples"
    text += f"; crosses: {rejected} not learned from ({'; '.join(reasons)})." if rejected else ", all learned from."
    lost = int(record.unpredicted.sum())
    return f"{text} Online R² leaves out {lost} predictions that are not finite." if lost else text


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


_CURVE_POINTS = 200


def draw_outputs(report: OutputReport, ax: Axes | None = None, *, output: int = 0, unit: str = "label units") -> Axes:
    """Plot histograms of the predictions of one output, and the Gaussian of the source's mean and standard deviation.

    Args:
        report: report to plot.
        ax: axes to draw on; a new figure by default.
        output: index of the output.
        unit: unit of the predictions.
    """
    outputs = len(report.edges)
    if not 0 <= output < outputs:
        raise OptionError(f"Expected output between 0 and {outputs - 1}, found {output!r}.")
    axes = prepared(ax, x=f"prediction ({unit})", y="density")
    for place, (name, densities) in enumerate(report.densities.items()):
        look = look_of(3 * place)
        label = f"{name}: {report.means[name][output]:.3g} ± {report.sds[name][output]:.3g}".replace("-", "−")
        axes.stairs(
            densities[output], report.edges[output], color=look.colour, linewidth=1.4, linestyle="-" if place else ":",
            label=label,
        )  # fmt: skip
    mean, sd = report.source_means[output], report.source_sds[output]
    if sd > 0:
        x = np.linspace(mean - 3.5 * sd, mean + 3.5 * sd, _CURVE_POINTS)
        height = np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))
        label = f"source: {mean:.3g} ± {sd:.3g}".replace("-", "−")
        axes.fill_between(x, height, color=GREY, alpha=0.25, linewidth=0, label=label)
    counts = sorted(set(report.counts.values()))
    which = "" if outputs == 1 else f"output {output}, "
    titled(axes, f"{which}N = {' or '.join(map(str, counts))}")
    keyed(axes, loc="best")
    return axes


_MANY = 3000  # points beyond which overplotting would hide their density


def draw_predictions(
    report: PredictionReport, ax: Axes | None = None, *, output: int = 0, unit: str = "label units"
) -> Axes:
    """Plot predictions of one output against the labels, with the identity line; many points become hexagonal bins.

    Args:
        report: report to plot.
        ax: axes to draw on; a new figure by default.
        output: index of the output.
        unit: unit of the labels.
    """
    outputs = report.labels.shape[1]
    if not 0 <= output < outputs:
        raise OptionError(f"Expected output between 0 and {outputs - 1}, found {output!r}.")
    axes = prepared(ax, x=f"label ({unit})", y=f"prediction ({unit})")
    labels, predictions = report.labels[:, output], report.predictions[:, output]
    finite = np.isfinite(predictions)
    if len(labels) > _MANY:
        drawn = axes.hexbin(labels[finite], predictions[finite], gridsize=45, mincnt=1, cmap="cividis_r", bins="log")
        bar = axes.get_figure(root=True).colorbar(drawn, ax=axes)  # type: ignore[union-attr]
        bar.set_label("samples", fontsize=SMALL)
        bar.ax.tick_params(labelsize=SMALL)
    else:
        axes.scatter(labels, predictions, s=9, color=SOURCE_LOOK.colour, alpha=0.5, linewidths=0)
    ends = [labels.min(), labels.max()]
    axes.plot(ends, ends, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="prediction = label")
    scores = report.scores
    which = "" if outputs == 1 else f"output {output}; scores over all {outputs}:\n"
    title = f"{which}R² {scores.r2:.3f}, RMSE {scores.rmse:.3g}, MAE {scores.mae:.3g}, N = {scores.count}"
    titled(axes, title.replace("-", "−"))
    keyed(axes, loc="upper left")
    return axes
