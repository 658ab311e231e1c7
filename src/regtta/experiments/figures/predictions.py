"""Scatter plot of predictions against labels."""

import numpy as np
from matplotlib.axes import Axes

from regtta.errors import OptionError
from regtta.experiments.analysis.predictions import PredictionReport
from regtta.experiments.figures.style import GREY, SMALL, SOURCE_LOOK, keyed, prepared, titled

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
