"""Figures of a record: bars of the step's variants, scaling curves and profiles."""

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.speed.findings import Curve, Point, Row, Shares, Spread, Table
from benchmarks.speed.record import Record
from regtta.report.figures import (
    GREY,
    SERIES_STYLES,
    SMALL_FONT,
    add_caption,
    add_legend,
    new_figure,
    prepare_axes,
    save_figure,
    series_style,
    set_title,
)

VARIANTS, CURVES, PROFILES = "variants.png", "curves.png", "profile.png"
_ACROSS = 3  # maximum number of panels per row
_BAR, _OWN = "#56B4E9", "#0072B2"


def figures_of(record: Record) -> dict[str, Callable[[Record], Figure]]:
    """Return the drawing functions of the figures that ``record`` has data for, by file name."""
    every: Mapping[str, tuple[Callable[[Record], Figure], object]] = {
        VARIANTS: (draw_variants, _steps(record)),
        CURVES: (draw_curves, _curves(record)),
        PROFILES: (draw_profiles, _profiles(record)),
    }
    return {name: draw for name, (draw, found) in every.items() if found}


def draw(record: Record, folder: Path) -> None:
    """Write every figure of ``record``."""
    for name, drawn in figures_of(record).items():
        save_figure(drawn(record), folder / name, overwrite=True)


def draw_variants(record: Record) -> Figure:
    """Draw a bar chart per table: samples per second on a GPU, the speed-up over the reference elsewhere."""
    tables = _steps(record)
    heights = [0.26 * len(found.rows) + 0.75 for found in tables]
    figure = new_figure(7.2, sum(heights) + 0.4)
    places = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights).ravel()
    for axes, found in zip(places, tables, strict=True):
        _bars(axes, found)
    add_caption(figure, f"Medians with quartiles, {record.made_with['device']}.")
    return figure


def draw_curves(record: Record) -> Figure:
    """Draw one panel per curve, with logarithmic axes."""
    curves = _curves(record)
    across = min(_ACROSS, len(curves))
    down = -(-len(curves) // across)
    figure = new_figure(2.9 * across + 0.4, 2.5 * down + 0.5)
    places = figure.subplots(down, across, squeeze=False).ravel()
    for axes, curve in zip(places, curves, strict=False):
        _lines(axes, curve)
    for axes in places[len(curves) :]:
        axes.set_axis_off()
    add_caption(figure, f"Each line over its own first point, medians with quartiles, {record.made_with['device']}.")
    return figure


def draw_profiles(record: Record) -> Figure:
    """Draw one stacked bar per step, by kind of work."""
    found = _profiles(record)
    kinds = list(dict.fromkeys(kind for entry in found for kind in entry.parts))
    figure = new_figure(8.2, 0.42 * len(found) + 1.3)
    axes = prepare_axes(figure.add_subplot(), x="share of the time of all kernels", y="")
    lefts = [0.0] * len(found)
    for place, kind in enumerate(kinds):
        widths = [entry.parts.get(kind, 0.0) for entry in found]
        hatch = ("", "//", "..", "xx")[place // len(SERIES_STYLES)]
        axes.barh(
            range(len(found)),
            widths,
            left=lefts,
            color=series_style(place).colour,
            hatch=hatch,
            label=kind,
            edgecolor="white",
        )
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    axes.set_yticks(range(len(found)), [entry.title for entry in found], fontsize=SMALL_FONT)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    add_legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))
    add_caption(figure, f"By torch's profiler, {record.made_with['device']}.")
    return figure


def _steps(record: Record) -> list[Table]:
    return [table for name, found in record.findings.items() if name.startswith("step/") for table in found.tables]


def _curves(record: Record) -> list[Curve]:
    return [curve for found in record.findings.values() for curve in found.curves]


def _profiles(record: Record) -> list[Shares]:
    return [entry for found in record.findings.values() for entry in found.shares]


def _bars(axes: Axes, found: Table) -> None:
    rows = [row for row in found.rows if row.ratios]
    label, lengths = _lengths(rows)
    prepare_axes(axes, x=label, y="")
    set_title(axes, found.title)
    colours = [_OWN if row.name.startswith("regtta") else _BAR for row in rows]
    whiskers = [[one.median - one.low for one in lengths], [one.high - one.median for one in lengths]]
    axes.barh(
        range(len(rows)),
        [one.median for one in lengths],
        color=colours,
        xerr=whiskers,
        error_kw={"ecolor": GREY, "elinewidth": 1.0},
    )
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=SMALL_FONT)
    axes.invert_yaxis()


def _lengths(rows: list[Row]) -> tuple[str, list[Spread]]:
    """Return label and lengths of the bars: samples per second if absolute times exist, else speed-ups."""
    rates = [_rate(row) for row in rows]
    known = [rate for rate in rates if rate is not None]
    if len(known) == len(rows):
        return "samples a second", known
    reference = next(iter(rows[0].ratios))
    return f"times as fast as {reference}", [row.ratios[reference].inverse for row in rows]


def _rate(row: Row) -> Spread | None:
    """Convert the quartiles of the time of a call to samples per second."""
    if row.milliseconds is None or row.per_second is None:
        return None
    calls, samples = row.milliseconds.inverse, row.per_second * row.milliseconds.median
    return Spread(samples * calls.median, samples * calls.low, samples * calls.high, calls.count)


def _lines(axes: Axes, curve: Curve) -> None:
    prepare_axes(axes, x=curve.along, y=f"{curve.of} over the first")
    axes.set_title(curve.title, fontsize=SMALL_FONT)
    for place, (name, points) in enumerate(curve.lines.items()):
        style, growth = series_style((1, 3, 4)[place % 3]), [point.growth for point in points]
        axes.errorbar(
            [point.size for point in points],
            [one.median for one in growth],
            yerr=[[one.median - one.low for one in growth], [one.high - one.median for one in growth]],
            color=style.colour, linestyle=style.line, marker=style.marker, markersize=3.5, linewidth=1.3, label=name,
        )  # fmt: skip
    _in_powers(axes, [point for points in curve.lines.values() for point in points])
    add_legend(axes, loc="upper left")


def _in_powers(axes: Axes, points: list[Point]) -> None:
    """Set logarithmic axes with plain numbers as tick labels, and ticks at the measured sizes."""
    sizes = sorted({point.size for point in points})
    low, high = min(point.growth.low for point in points), max(point.growth.high for point in points)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.9 * min(low, 0.9), max(high, 2.0) * 1.5)  # space for the legend
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
