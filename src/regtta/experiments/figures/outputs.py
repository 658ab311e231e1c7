"""Plot of the distribution of predictions before and after adaptation, next to that of the source."""

import numpy as np
from matplotlib.axes import Axes

from regtta.errors import OptionError
from regtta.experiments.analysis.outputs import OutputReport
from regtta.experiments.figures.style import GREY, keyed, look_of, prepared, titled

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
