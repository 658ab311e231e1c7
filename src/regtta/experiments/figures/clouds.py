"""Scatter plots of source and target features in two dimensions, one panel per method."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.experiments.analysis.clouds import Clouds
from regtta.experiments.figures.style import SOURCE_LOOK, TARGET_LOOK, caption, keyed, new_figure, prepared, titled
from regtta.options import did_you_mean

_ACROSS = 3  # panels per row
_PANEL = 2.9  # inches


def draw_cloud(clouds: Clouds, method: str, ax: Axes | None = None) -> Axes:
    """Plot the source points and the target points after ``method``, with their distance if there is one."""
    if method not in clouds.targets:
        raise OptionError(
            f"Expected method to be one of {sorted(clouds.targets)}, found {method!r}."
            + did_you_mean(method, clouds.targets)
        )
    axes = prepared(ax, x=clouds.axes[0], y=clouds.axes[1])
    for points, look, name in (
        (clouds.source, SOURCE_LOOK, "source"),
        (clouds.targets[method], TARGET_LOOK, "target"),
    ):
        axes.scatter(
            points[:, 0], points[:, 1], s=7, marker=look.marker, color=look.colour, alpha=0.55, linewidths=0,
            label=f"{name}, {len(points)}",
        )  # fmt: skip
    distance = "" if clouds.transport is None else f": OT {clouds.transport.distances[method]:#.3g}"
    titled(axes, method + distance)
    return axes


def cloud_panels(clouds: Clouds) -> Figure:
    """Plot one panel per method, with shared axis limits so that the clouds are comparable."""
    methods = list(clouds.targets)
    columns = 2 if len(methods) == 4 else min(max(len(methods), 1), _ACROSS)
    rows = max(1, -(-len(methods) // columns))
    figure = new_figure(max(_PANEL * columns, 4.0), _PANEL * rows + 0.7)
    grid = figure.add_gridspec(rows, columns)
    first: Axes | None = None
    for place, method in enumerate(methods):
        row, column = divmod(place, columns)
        axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
        draw_cloud(clouds, method, axes)
        if first is None:
            first = axes
            keyed(axes, loc="best", markerscale=2)
        if column > 0:
            axes.set_ylabel("")
        if place + columns < len(methods):
            axes.set_xlabel("")
    caption(figure, _about(clouds))
    return figure


def _about(clouds: Clouds) -> str:
    text = f"Circles: source; triangles: target after each method. Points drawn with seed {clouds.seed}."
    if clouds.transport is None:
        return text + " The map was learned on the source alone, before adapting."
    transport = clouds.transport
    return (
        f"{text} OT: optimal-transport distance between them over the first {transport.components} source directions "
        f"({transport.cost}); {transport.floor:#.3g} between two halves of the source."
    )
