"""Plots of the quantities recorded over the steps of a stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.experiments.analysis.reports import Array
from regtta.experiments.analysis.stream import StreamRecord
from regtta.experiments.figures.style import GREY, SMALL, caption, keyed, look_of, new_figure, prepared
from regtta.options import check_choice

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
