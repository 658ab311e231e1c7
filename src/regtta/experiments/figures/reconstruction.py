"""Plot of the error of reconstructing target features from source directions, one curve per method."""

import numpy as np
from matplotlib.axes import Axes

from regtta.experiments.analysis.reconstruction import Reconstruction
from regtta.experiments.figures.style import GREY, keyed, look_of, prepared, titled

_MARKS = 8  # markers per curve


def draw_reconstruction(report: Reconstruction, ax: Axes | None = None) -> Axes:
    """Plot the mean error against the number of directions, with the rank marked.

    A low error means that the features lie in the source subspace. A method whose features are not finite is only
    listed in the legend.
    """
    axes = prepared(ax, x="source directions n", y="reconstruction error ‖z$_r$ − z‖ (feature units)")
    every = max(1, len(report.bases) // _MARKS)
    for place, (name, errors) in enumerate(report.errors.items()):
        look = look_of(place)
        axes.plot(
            report.bases, errors, color=look.colour, linestyle=look.line, linewidth=1.5, marker=look.marker,
            # Markers are offset per curve, so that curves that coincide stay visible.
            markersize=4.5, markevery=(place % every, every),
            label=name if np.isfinite(errors).all() else f"{name} (not finite)",
        )  # fmt: skip
    axes.axvline(report.rank, color=GREY, linewidth=1, linestyle=(0, (1, 2)), label=f"rank {report.rank}")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    counts = sorted(set(report.counts.values()))
    titled(axes, f"mean over {' or '.join(map(str, counts))} samples")
    keyed(axes, loc="upper right")
    return axes
