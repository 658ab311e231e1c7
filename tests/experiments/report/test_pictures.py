import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from regtta.experiments.report import Picture
from regtta.experiments.report.pictures import DPI, TOLERANCE, figure_of, png_of


def read(figure: Figure) -> Image.Image:
    return Image.open(io.BytesIO(png_of(figure)))


def drawn(figure: Figure) -> np.ndarray:
    """As matplotlib writes it, without a palette."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=DPI)
    return np.asarray(Image.open(written).convert("RGB")).astype(int)


def test_figures_get_a_palette_that_nobody_sees(pictures):
    for picture in (pictures[0], pictures[2]):  # lines and text; many half-transparent points
        image = read(picture.figure)
        assert image.mode == "P"
        assert np.abs(np.asarray(image.convert("RGB")).astype(int) - drawn(picture.figure)).max() <= TOLERANCE


def test_photographs_keep_their_colours():
    figure = Figure(figsize=(2, 2))
    pixels = np.random.default_rng(0).random((100, 100, 3))
    figure.add_axes((0, 0, 1, 1)).imshow(pixels, interpolation="nearest")
    image = read(figure)
    assert image.mode == "RGB"
    assert (np.asarray(image) == drawn(figure)).all()


def test_a_figure_without_ground_lies_on_white():
    figure = Figure(figsize=(1, 1), facecolor="none")
    assert read(figure).convert("RGB").getcolors() == [(192 * 192, (255, 255, 255))]


@pytest.mark.parametrize(("width", "kind"), [(4.6, "narrow"), (5, "narrow"), (5.1, "wide")])
def test_a_picture_says_its_size_at_two_pixels_for_one(width, kind):
    figure = Figure(figsize=(width, 2), dpi=77)
    markup = figure_of(Picture("A title", "what is seen", "A caption.", figure), "name")
    assert f'alt="what is seen" width="{round(width * 96)}" height="192"' in markup
    assert f'<figure class="{kind}"' in markup
    assert read(figure).size == (int(width * DPI), 2 * DPI)
    assert figure.dpi == 77
