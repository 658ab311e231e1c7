import itertools

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from regtta.report.figures import add_caption, draw_spectrum, histogram_grid
from regtta.report.figures.style import (
    SERIES_STYLES,
    SOURCE_STYLE,
    TARGET_STYLE,
    new_figure,
    prepare_axes,
    series_style,
)


def lightness(colour):
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), to_rgb(colour), strict=True))


def test_styles_differ_in_colour_marker_and_line_or_grey():
    for one, other in itertools.combinations(SERIES_STYLES, 2):
        assert one.colour != other.colour
        assert one.marker != other.marker
        assert one.line != other.line or abs(lightness(one.colour) - lightness(other.colour)) > 0.1


def test_source_and_target_differ_in_grey():
    assert abs(lightness(SOURCE_STYLE.colour) - lightness(TARGET_STYLE.colour)) > 0.25
    assert SOURCE_STYLE.marker != TARGET_STYLE.marker


def test_styles_repeat_after_the_last():
    assert series_style(len(SERIES_STYLES)) == series_style(0)


def test_given_axes_are_used():
    axes = Figure().add_subplot()
    assert prepare_axes(axes, x="n", y="error (m)") is axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("n", "error (m)")


def test_a_caption_is_wrapped_and_placed_below_everything(reports):
    axes = draw_spectrum(reports.subspace)
    text = add_caption(axes.figure, "word " * 60)
    axes.figure.canvas.draw()
    renderer = axes.figure.canvas.get_renderer()
    box = text.get_window_extent(renderer)
    assert box.x1 <= axes.figure.bbox.x1
    assert box.y1 <= axes.get_tightbbox(renderer).y0 + 1
    assert " ".join(text.get_text().split()) == ("word " * 60).strip()


def test_line_breaks_of_a_caption_are_kept():
    assert add_caption(new_figure(), "one\ntwo").get_text() == "one\ntwo"


def test_figures_do_not_change_matplotlibs_settings(reports):
    before = dict(matplotlib.rcParams)
    histogram_grid(reports.histograms).canvas.draw()
    assert dict(matplotlib.rcParams) == before


def overflowing(figure):
    """Return the texts that extend beyond the figure after layout."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found = []
    for axes in figure.axes:
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            box = text.get_window_extent(renderer)
            if text.get_text() and (
                box.x0 < -1 or box.y0 < -1 or box.x1 > figure.bbox.x1 + 1 or box.y1 > figure.bbox.y1 + 1
            ):
                found.append(text.get_text())
    return found


@pytest.mark.parametrize(
    "name", ["spectrum", "significance", "reconstruction", "normality", "gradient_norms", "predictions"]
)
def test_nothing_is_clipped(reports, name):
    from regtta.report import figures

    report = {"spectrum": "subspace", "significance": "subspace", "gradient_norms": "gradients"}.get(name, name)
    assert overflowing(getattr(figures, f"draw_{name}")(getattr(reports, report)).figure) == []


@pytest.mark.parametrize(
    ("name", "report"), [("histogram_grid", "histograms"), ("cloud_panels", "clouds"), ("stream_panels", "stream")]
)
def test_nothing_is_clipped_in_panels(reports, name, report):
    from regtta.report import figures

    assert overflowing(getattr(figures, name)(getattr(reports, report))) == []
