"""Rendering of the parts of a page: sort keys, column alignment, and figures as PNG."""

import io
import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from regtta.report import Page, ReportCell, ReportFigure, ReportTable, Section, render_html
from regtta.report.rendering import IMAGE_DPI, PALETTE_TOLERANCE, encode_png, sort_key


def html_with(*, tables: tuple[ReportTable, ...] = (), figures: tuple[ReportFigure, ...] = ()) -> str:
    """Return a page of one section with ``tables`` and ``figures``."""
    section = Section("One", (), tables, figures)
    return render_html(Page("run", "It is unknown.", "unknown", (), (), (), (section,), "regtta report"))


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.93", 0.93),
        ("0.93 ± 0.02", 0.93),
        ("+0.25 [+0.21, +0.29]", 0.25),
        ("−1.2", -1.2),
        ("-1.2", -1.2),
        ("  7 %", 7.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("1e-3", 0.001),
        ("2E−4", 2e-4),
        ("12,345.5", 12345.5),
        ("1,2", 1.0),
        ("1,2345", 1.0),
        ("15 of 15", 15.0),
        ("diverged", "diverged"),
        ("ssa 10", "ssa 10"),
        ("− none", "− none"),
        ("nan", "nan"),
        ("", None),
        ("  ", None),
    ],
)
def test_text_sorts_by_its_leading_number(text, key):
    assert sort_key(ReportCell(text)) == key


@pytest.mark.parametrize(
    ("value", "key"),
    [(3, 3.0), (np.float64(2.5), 2.5), (-math.inf, -math.inf), ("7 words", "7 words"), ("", None), (math.nan, None)],
)
def test_a_value_takes_precedence_over_the_text(value, key):
    assert sort_key(ReportCell("1 text", value=value)) == key


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        (1e-7, 'data-number="1e-07"'),
        (np.float64(0.1), 'data-number="0.1"'),
        (math.inf, 'data-number="Infinity"'),
        (-math.inf, 'data-number="-Infinity"'),
        ("1 word", 'data-text="1 word"'),
    ],
)
def test_sort_keys_are_written_in_the_format_of_the_script(key, attribute):
    assert f'<th scope="row" class="text" {attribute}>a</th>' in html_with(
        tables=(ReportTable("t", ("c",), ((ReportCell("a", value=key),),)),)
    )


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (("0.1", "−2", "diverged"), "number"),
        (("0.1", ""), "number"),
        (("0.1", "diverged"), "text"),
        (("a", "b", "3"), "text"),
        (("", ""), "text"),
        ((), "text"),
    ],
)
def test_a_column_of_mostly_numbers_is_right_aligned(texts, kind):
    grid = ReportTable("t", ("c",), tuple((ReportCell(text),) for text in texts))
    assert html_with(tables=(grid,)).count(f'class="{kind}"') == 1 + len(texts)


# --- figures -------------------------------------------------------------------------------------


def read(figure: Figure) -> Image.Image:
    return Image.open(io.BytesIO(encode_png(figure)))


def drawn(figure: Figure) -> np.ndarray:
    """Return the pixels as matplotlib draws them, without a palette."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=IMAGE_DPI)
    return np.asarray(Image.open(written).convert("RGB")).astype(int)


def test_palettes_change_colours_imperceptibly(pictures):
    for picture in (pictures[0], pictures[2]):  # lines and text; many half-transparent points
        image = read(picture.figure)
        assert image.mode == "P"
        assert np.abs(np.asarray(image.convert("RGB")).astype(int) - drawn(picture.figure)).max() <= PALETTE_TOLERANCE


def test_photographs_keep_their_colours():
    figure = Figure(figsize=(2, 2))
    pixels = np.random.default_rng(0).random((100, 100, 3))
    figure.add_axes((0, 0, 1, 1)).imshow(pixels, interpolation="nearest")
    image = read(figure)
    assert image.mode == "RGB"
    assert (np.asarray(image) == drawn(figure)).all()


def test_a_transparent_figure_gets_a_white_background():
    figure = Figure(figsize=(1, 1), facecolor="none")
    assert read(figure).convert("RGB").getcolors() == [(192 * 192, (255, 255, 255))]


@pytest.mark.parametrize(("width", "kind"), [(4.6, "narrow"), (5, "narrow"), (5.1, "wide")])
def test_figures_have_two_image_pixels_per_css_pixel(width, kind):
    figure = Figure(figsize=(width, 2), dpi=77)
    markup = html_with(figures=(ReportFigure("A title", "what is seen", "A caption.", figure),))
    assert f'alt="what is seen" width="{round(width * 96)}" height="192"' in markup
    assert f'<figure class="{kind}"' in markup
    assert read(figure).size == (int(width * IMAGE_DPI), 2 * IMAGE_DPI)
    assert figure.dpi == 77
