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
    NORMAL_FONT,
    SMALL_FONT,
    SOURCE_STYLE,
    add_caption,
    add_legend,
    new_figure,
    prepare_axes,
    series_style,
    set_title,
)

_REJECTED = "#D55E00"


@dataclass(frozen=True)
class _QuantityStyle:
    """Axis label of a quantity, and its reference value under no shift, if there is one."""

    label: str
    level: float | None = None


STREAM_QUANTITIES: Mapping[str, _QuantityStyle] = MappingProxyType(
    {
        "loss": _QuantityStyle("loss"),
        "gradient_norm": _QuantityStyle("gradient\nnorm"),
        "displacement": _QuantityStyle("displacement\n(share of ‖θ₀‖)"),
        "shift": _QuantityStyle("mean shift\n(source sd)", level=0),
        "spread": _QuantityStyle("sd of batch\n/ of source", level=1),
        "online_r2": _QuantityStyle("online R²\nso far"),
    }
)


def draw_stream(record: StreamRecord, quantity: str, ax: Axes | None = None) -> Axes:
    """Plot one quantity over the steps, one line per direction for shift and spread; crosses mark rejected batches.

    Args:
        record: record of the stream.
        quantity: ``"loss"``, ``"gradient_norm"``, ``"displacement"``, ``"shift"``, ``"spread"`` or ``"online_r2"``.
        ax: axes to draw on; a new figure by default.
    """
    check_choice("quantity", quantity, STREAM_QUANTITIES.keys())
    quantity_style = STREAM_QUANTITIES[quantity]
    axes = prepare_axes(ax, x="batch, from 0", y=quantity_style.label)
    values = _columns(record, quantity)
    steps = np.arange(len(values))
    if quantity_style.level is not None:
        axes.axhline(quantity_style.level, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    for index, column in enumerate(values.T):
        style = series_style(3 if values.shape[1] == 1 else index)
        axes.plot(
            steps, column, color=style.colour, linestyle=style.line, linewidth=1.2, marker=style.marker, markersize=3.5,
            markevery=max(1, len(steps) // 12), label=f"direction {index}" if values.shape[1] > 1 else None,
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
    available = [name for name in STREAM_QUANTITIES if np.isfinite(_columns(record, name)).any()]
    shown = available if quantities is None else list(quantities)
    if not shown:
        raise OptionError(f"Expected at least one quantity to draw, found none; this stream has {available}.")
    figure = new_figure(6.4, 1.25 * len(shown) + 0.9)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(shown, panels, strict=True):
        draw_stream(record, name, axes)
        axes.yaxis.label.set_fontsize(SMALL_FONT)
        axes.label_outer()
    figure.align_ylabels()
    directional = [axes for name, axes in zip(shown, panels, strict=True) if name in ("shift", "spread")]
    if directional and record.shift.shape[1] > 1:
        add_legend(directional[0], loc="center left", bbox_to_anchor=(1.0, 0.5))
    add_caption(figure, _caption_text(record))
    return figure


def _columns(record: StreamRecord, quantity: str) -> Array:
    """Return the quantity as (S, lines)."""
    values: Array = getattr(record, quantity)
    return values if values.ndim == 2 else values[:, None]


def _caption_text(record: StreamRecord) -> str:
    rejected = int((~record.learned).sum())
    reasons = sorted({reason for reason in record.reasons if reason})
    text = f"{record.method}: {len(record.sizes)} batches, {int(record.sizes.sum())} samples"
    text += f"; crosses: {rejected} not learned from ({'; '.join(reasons)})." if rejected else ", all learned from."
    lost = int(record.unpredicted.sum())
    return f"{text} Online R² leaves out {lost} predictions that are not finite." if lost else text


_PANELS_PER_ROW = 3  # panels per row
_RUNNING_STYLES = (0, 1, 3)  # black, orange, blue: easy to tell apart, also for the colour-blind


def draw_running_scores(scores: RunningScores, ax: Axes | None = None) -> Axes:
    """Plot R² along one kind of stream, one line per method.

    Args:
        scores: scores to plot.
        ax: axes to draw on; a new figure by default.
    """
    axes = prepare_axes(ax, x="share of the stream", y="R² in the slice")
    set_title(axes, scores.kind)
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    for index, (name, values) in enumerate(scores.lines.items()):
        style = series_style(_RUNNING_STYLES[index % len(_RUNNING_STYLES)])
        middles = (np.arange(len(values)) + 0.5) / len(values)
        axes.plot(
            middles, values, color=style.colour, linestyle=style.line, marker=style.marker, markersize=3.5,
            markevery=(index, 4), linewidth=1.4, label=name,
        )  # fmt: skip
    axes.set_xlim(0, 1)
    return axes


def running_score_panels(curves: Sequence[RunningScores], note: str) -> Figure:
    """Plot one panel per kind of stream, with a shared legend and a caption.

    Args:
        curves: scores of each kind of stream.
        note: text of the caption.
    """
    if not curves:
        raise OptionError("Expected scores along at least one kind of stream, found none.")
    across = min(_PANELS_PER_ROW, len(curves))
    down = -(-len(curves) // across)
    figure = new_figure(2.7 * across + 0.6, 2.1 * down + 0.9)
    panels = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
    for index, axes in enumerate(panels):
        if index >= len(curves):
            axes.set_axis_off()
            continue
        draw_running_scores(curves[index], axes)
        axes.tick_params(labelbottom=index + across >= len(curves))
        axes.set_xlabel("share of the stream" if index + across >= len(curves) else "", fontsize=NORMAL_FONT)
        axes.set_ylabel("R² in the slice" if index % across == 0 else "", fontsize=NORMAL_FONT)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=SMALL_FONT, frameon=False)
    add_caption(figure, note)
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
    axes = prepare_axes(ax, x=f"prediction ({unit})", y="density")
    for index, (name, densities) in enumerate(report.densities.items()):
        style = series_style(3 * index)
        label = f"{name}: {report.means[name][output]:.3g} ± {report.sds[name][output]:.3g}".replace("-", "−")
        axes.stairs(
            densities[output], report.edges[output], color=style.colour, linewidth=1.4, linestyle="-" if index else ":",
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
    set_title(axes, f"{which}N = {' or '.join(map(str, counts))}")
    add_legend(axes, loc="best")
    return axes


_MAX_SCATTER_POINTS = 3000  # points beyond which overplotting would hide their density


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
    axes = prepare_axes(ax, x=f"label ({unit})", y=f"prediction ({unit})")
    labels, predictions = report.labels[:, output], report.predictions[:, output]
    finite = np.isfinite(predictions)
    if len(labels) > _MAX_SCATTER_POINTS:
        hexagons = axes.hexbin(labels[finite], predictions[finite], gridsize=45, mincnt=1, cmap="cividis_r", bins="log")
        bar = axes.get_figure(root=True).colorbar(hexagons, ax=axes)  # type: ignore[union-attr]
        bar.set_label("samples", fontsize=SMALL_FONT)
        bar.ax.tick_params(labelsize=SMALL_FONT)
    else:
        axes.scatter(labels, predictions, s=9, color=SOURCE_STYLE.colour, alpha=0.5, linewidths=0)
    ends = [labels.min(), labels.max()]
    axes.plot(ends, ends, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="prediction = label")
    scores = report.scores
    which = "" if outputs == 1 else f"output {output}; scores over all {outputs}:\n"
    title = f"{which}R² {scores.r2:.3f}, RMSE {scores.rmse:.3g}, MAE {scores.mae:.3g}, N = {scores.count}"
    set_title(axes, title.replace("-", "−"))
    add_legend(axes, loc="upper left")
    return axes
