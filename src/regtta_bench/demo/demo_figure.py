"""Figure of the demo."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from regtta.methods import SSA, BNAdapt, FeatureAlignment, Method, NoAdaptation
from regtta.report.formatting import format_number
from regtta_bench.demo.demo_recipe import CLEAN, SOURCE, DemoMethod
from regtta_bench.demo.demo_study import SourceModel, scene_images
from regtta_bench.demo.demo_table import DemoStudy, Spread

SMALL, NORMAL = 8.5, 9.5  # points
FLOOR = -0.5  # lower R² is drawn at the edge, with its value beside it
_GREY = "#555555"
_GROUP = 0.74  # share of a stream's column covered by its marks


@dataclass(frozen=True)
class MarkerStyle:
    """Marker style, distinguishable by shape and lightness even without colour."""

    marker: str
    colour: str
    size: float


# Colours of Okabe and Ito, chosen for colour blindness.
_STYLES: dict[type[Method], MarkerStyle] = {
    NoAdaptation: MarkerStyle("X", "#000000", 8),
    BNAdapt: MarkerStyle("s", "#D55E00", 6.5),
    FeatureAlignment: MarkerStyle("^", "#56B4E9", 7.5),
    SSA: MarkerStyle("o", "#0072B2", 7.5),
}
_OTHER_STYLE = MarkerStyle("D", "#CC79A7", 6.5)


def draw_digit(axes: Axes, study: DemoStudy, example: SourceModel, scene: str) -> None:
    """Draw one target digit as degraded in ``scene``."""
    images = scene_images(study.recipe, scene, example)
    # The first digit 2 if there is one: it is recognisable even in 8×8 pixels.
    shown = int((example.target.targets == 2).int().argmax())
    axes.imshow(images[shown, 0].numpy(), cmap="gray", vmin=0, vmax=1)
    degradation = study.recipe.degradations.get(scene)
    setting = "as trained on" if degradation is None else degradation.setting
    # Two texts, because the lines of a single one shift with the height of their letters.
    axes.set_title(scene, fontsize=NORMAL, fontweight="bold", pad=16)
    axes.text(0.5, 1.05, setting, transform=axes.transAxes, ha="center", fontsize=SMALL)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_scores(axes: Axes, study: DemoStudy) -> None:
    """Draw the offline R² of every method on every stream."""
    _prepare(axes, study, "offline R²")
    clean = study.spread(CLEAN, SOURCE).mean
    if clean is not None:
        axes.axhline(clean, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        axes.text(_end(study), clean + 0.02, "Source on clean digits", ha="right", fontsize=SMALL, color=_GREY)
    entries = study.recipe.methods
    for column, scene in enumerate(study.recipe.scenes):
        for entry, x in zip(entries, _positions(column, len(entries)), strict=True):
            _draw_score(axes, x, study.spread(scene, entry.name), entry)
    axes.set_ylim(FLOOR, 1.08)
    axes.axhline(0, color=_GREY, linewidth=0.9, zorder=1)


def draw_gains(axes: Axes, study: DemoStudy) -> None:
    """Draw the gain of each feature-alignment method over BN-adapt with the same running statistics."""
    _prepare(axes, study, "ΔR² to BN-adapt")
    axes.axhline(0, color="#D55E00", linewidth=1.2, zorder=1)
    entries = [entry for entry in study.recipe.methods if entry.baseline not in (None, SOURCE) and not _is_bn(entry)]
    for column, scene in enumerate(study.recipe.scenes):
        for entry, x in zip(entries, _positions(column, len(entries)), strict=True):
            gap = study.difference(scene, entry.name, str(entry.baseline))
            if gap.mean is None:
                _write_diverged(axes, x, gap)
            else:
                _draw_spread(axes, x, gap.mean, gap, entry)
    axes.margins(y=0.15)
    axes.text(
        0.005,
        0.97,
        "above the line: better than BN-adapt",
        transform=axes.transAxes,
        va="top",
        fontsize=SMALL,
        color=_GREY,
    )


def legend_handles(study: DemoStudy) -> list[Line2D]:
    """Return one legend handle per method, in the order of the marks."""
    return [
        Line2D([], [], linestyle="none", label=entry.label, markersize=_style(entry).size, **_marker_options(entry))
        for entry in study.recipe.methods
    ]


def _draw_score(axes: Axes, x: float, spread: Spread, entry: DemoMethod) -> None:
    if spread.mean is None:
        _write_diverged(axes, x, spread)
        return
    if min(*spread.finite, spread.mean - (spread.sd or 0)) < FLOOR:
        axes.plot(x, FLOOR, marker="v", color=_style(entry).colour, markersize=6, linestyle="none", clip_on=False)
    if spread.mean < FLOOR:
        axes.plot([x, x], [FLOOR, FLOOR + 0.2], color=_style(entry).colour, linewidth=1.2)
        axes.text(x + 0.04, FLOOR + 0.1, format_number(spread.mean), va="center", fontsize=SMALL)
    else:
        _draw_spread(axes, x, spread.mean, spread, entry)


def _draw_spread(axes: Axes, x: float, mean: float, spread: Spread, entry: DemoMethod) -> None:
    """Draw the mean, ±1 sd, and the individual source models."""
    style = _style(entry)
    if spread.sd is not None:
        low, high = mean - spread.sd, mean + spread.sd
        axes.plot([x, x], [low, high], color=style.colour, linewidth=1.2, zorder=2)
        axes.plot([x] * len(spread.finite), spread.finite, ".", color=_GREY, markersize=2.5, zorder=4)
    axes.plot(x, mean, linestyle="none", markersize=style.size, zorder=3, **_marker_options(entry))


def _write_diverged(axes: Axes, x: float, spread: Spread) -> None:
    axes.text(
        x,
        0.5,
        spread.text(),
        transform=axes.get_xaxis_transform(),
        rotation=90,
        fontsize=SMALL,
        ha="center",
        va="center",
    )


def _prepare(axes: Axes, study: DemoStudy, label: str) -> None:
    """Set up the axes with one shaded column per stream, aligned with its digit."""
    count = len(study.recipe.scenes)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_xticks([])
    for column in range(1, count, 2):
        axes.axvspan(column - 0.5, column + 0.5, color="#f1f1f1", zorder=0, linewidth=0)
    axes.set_ylabel(label, fontsize=NORMAL)
    axes.tick_params(axis="y", labelsize=SMALL)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _end(study: DemoStudy) -> float:
    return len(study.recipe.scenes) - 0.52


def _positions(column: int, count: int) -> Sequence[float]:
    step = _GROUP / max(count - 1, 1)
    return [column + step * (index - (count - 1) / 2) for index in range(count)]


def _style(entry: DemoMethod) -> MarkerStyle:
    return _STYLES.get(type(entry.method), _OTHER_STYLE)


def _marker_options(entry: DemoMethod) -> dict[str, Any]:
    style = _style(entry)
    hollow = entry.method.schedule.batch_norm == "batch"
    return {
        "marker": style.marker,
        "color": style.colour,
        "markerfacecolor": "white" if hollow else style.colour,
        "markeredgewidth": 1.5 if hollow else 1.0,
    }


def _is_bn(entry: DemoMethod) -> bool:
    return isinstance(entry.method, BNAdapt)


WIDTH, HEIGHT, DPI = 9.0, 7.6, 200  # inches; 1,800 pixels wide, twice what a README shows
_LEFT, _RIGHT = 0.085, 0.985


def draw_demo_figure(study: DemoStudy, example: SourceModel) -> Figure:
    """Draw the figure of a study, with a digit from the target of ``example`` for each stream.

    Does not use pyplot, whose global state belongs to the user.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    scenes = study.recipe.scenes
    top = figure.add_gridspec(1, len(scenes), left=_LEFT, right=_RIGHT, top=0.905, bottom=0.745, wspace=0)
    for column, scene in enumerate(scenes):
        draw_digit(figure.add_subplot(top[0, column]), study, example, scene)
    rows = figure.add_gridspec(
        2, 1, height_ratios=(3, 2), left=_LEFT, right=_RIGHT, top=0.735, bottom=0.165, hspace=0.16
    )
    draw_scores(figure.add_subplot(rows[0]), study)
    draw_gains(figure.add_subplot(rows[1]), study)
    _write_around(figure, study, len(example.target))
    return figure


def caption(study: DemoStudy, target: int) -> str:
    """Return the caption: data, counts, seeds, and the meaning of marks and bars."""
    recipe = study.recipe
    one = len(study.seeds) == 1
    bars = "Marks: its scores" if one else "Large marks: mean; bars: ±1 sd; small marks: single source models"
    return (
        f"UCI digits (32×32 pixels) read as numbers 0–9 by a small CNN; {study.sources()}, "
        f"trained on {recipe.source_digits} digits{'' if one else ' each'}.\n"
        f"Offline R² (no unit; 1 is perfect): one unlabelled pass over {target} target digits "
        f"in batches of {recipe.batch_size}, then scored on them.\n"
        f"{bars}; arrows: beyond the axis. "
        "ΔR²: paired, same running statistics.\n"
        "Hollow: BatchNorm's usual running statistics, which still hold some of the source; "
        "filled: debiased, which hold none."
    )


def _write_around(figure: Figure, study: DemoStudy, target: int) -> None:
    figure.text(
        _LEFT,
        0.985,
        "A scanner degrades: can a model that reads digits adapt, without labels?",
        fontsize=12.5,
        fontweight="bold",
        va="top",
    )
    handles = legend_handles(study)
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=((_LEFT + _RIGHT) / 2, 0.1),
        ncols=len(handles),
        frameon=False,
        fontsize=SMALL,
        handletextpad=0.1,
        columnspacing=0.9,
    )
    figure.text(_LEFT - 0.065, 0.012, caption(study, target), fontsize=SMALL, linespacing=1.35, color="#333333")
