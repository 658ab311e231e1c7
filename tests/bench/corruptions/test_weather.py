"""Snow, fog and brightness on dark and random images, against their formulas written out here."""

import colorsys

import numpy as np
import pytest
from scipy import stats

from regtta_bench.corruptions import CONSTANTS, CORRUPTIONS, SEVERITIES, corrupt
from regtta_bench.corruptions.apply import image_generator
from regtta_bench.corruptions.weather import plasma_fractal

cases = pytest.mark.parametrize(
    ("constants", "severity"), [(constants, severity) for constants in CONSTANTS for severity in SEVERITIES]
)


def colours(count=300):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 3), dtype=np.uint8)
    pixels[:4] = [[0, 0, 0], [255, 255, 255], [9, 9, 9], [255, 0, 0]]
    return pixels


def generators(count, name="snow"):
    return [image_generator(0, name, 1, index) for index in range(count)]


@cases
def test_snow_brightens_every_pixel_of_a_dark_field(constants, severity):
    dark = np.full((3, 40, 64, 3), 20, dtype=np.uint8)
    snowy = corrupt(dark, "snow", severity=severity, constants=constants, seed=0)
    mix = CONSTANTS[constants]["snow"][severity - 1][-1]
    whitened = mix * 20 / 255 + (1 - mix) * (1.5 * 20 / 255 + 0.5)
    assert snowy.min() >= int(255 * whitened - 1e-3)
    assert snowy.mean() > 255 * whitened + 1  # the flakes
    # Flakes come with their half turn.
    assert np.array_equal(snowy, snowy[:, ::-1, ::-1])


def test_snow_without_flakes_whitens():
    image = colours(32 * 32).reshape(1, 32, 32, 3)
    x = image.astype(float) / 255
    grey = 0.299 * x[..., :1] + 0.587 * x[..., 1:2] + 0.114 * x[..., 2:]
    expected = 0.7 * x + 0.3 * np.maximum(x, 1.5 * grey + 0.5)
    found = CORRUPTIONS["snow"](x.astype(np.float32), (-9, 0.3, 2, 0.5, 12, 4, 0.7), generators(1))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_flakes_are_the_normal_draws_above_the_threshold():
    black = np.zeros((2, 200, 200, 3), dtype=np.float32)
    # No zoom, hardly any blur, no whitening: the layer and its half turn themselves.
    layers = CORRUPTIONS["snow"](black, (0.1, 0.3, 1, 0.5, 10, 1e-3, 1.0), generators(2))[..., 0]
    chance = stats.norm.sf(0.5, loc=0.1, scale=0.3)
    assert np.mean(layers > 0) == pytest.approx(1 - (1 - chance) ** 2, rel=0.05)
    values = layers[layers > 0]
    assert values.min() >= 0.5
    assert values.max() <= 2


def test_flakes_are_cut_off_at_white_before_they_are_added():
    black = np.zeros((1, 32, 32, 3), dtype=np.float32)
    layers = CORRUPTIONS["snow"](black, (3.0, 1e-3, 2, 0.5, 10, 4, 1.0), generators(1))
    np.testing.assert_allclose(layers, 2, atol=1e-5)  # 1 from the layer, 1 from its half turn


def test_flakes_fall_along_lines_that_are_steeper_than_45_degrees():
    black = np.zeros((40, 96, 96, 3), dtype=np.float32)
    layers = CORRUPTIONS["snow"](black, (0.1, 0.3, 1, 0.8, 12, 12, 1.0), generators(40))[..., 0]
    layers -= layers.mean(axis=(1, 2), keepdims=True)

    def likeness(down, right):
        there = np.roll(layers, (down, right), axis=(1, 2))
        return (layers * there)[:, 10:-10, 10:-10].mean(axis=(1, 2))

    # Four rows on, a line is at most four columns off; four columns on, it is at least four rows off.
    along = np.max([likeness(4, right) for right in range(-4, 5)], axis=0)
    across = np.max([likeness(down, 4) for down in range(-2, 3)], axis=0)
    assert np.all(along > across)


@cases
def test_fog_brightens_what_is_dark_where_something_is_bright(constants, severity):
    amount = CONSTANTS[constants]["fog"][severity - 1][0]
    dark = np.full((8, 64, 64, 3), 20, dtype=np.uint8)
    dark[:, 0, 0] = 255
    foggy = corrupt(dark, "fog", severity=severity, constants=constants, seed=0)
    assert foggy[:, 1:].mean() > 20
    assert foggy.min() >= int(20 / (1 + amount))
    assert foggy.max() <= 255


def test_fog_is_the_formula_and_keeps_the_maximum_of_the_image():
    rng = np.random.default_rng(0)
    images = rng.random((3, 32, 40, 3), dtype=np.float32) * np.float32([[[[0.3]]], [[[0.6]]], [[[1.0]]]])
    found = CORRUPTIONS["fog"](images, (1.5, 2.0), generators(3, "fog"))
    fractals = plasma_fractal(32, 40, 2.0, generators(3, "fog"))
    for image, fractal, foggy in zip(images.astype(float), fractals, found, strict=True):
        expected = (image + 1.5 * fractal[..., None]) * image.max() / (image.max() + 1.5)
        np.testing.assert_allclose(foggy, expected, atol=1e-6)
        assert foggy.max() <= image.max() + 1e-6
    # So a flat field is darkened, by the definition itself: what is added never outweighs the scaling.
    flat = np.full((1, 32, 32, 3), 60, dtype=np.uint8)
    assert corrupt(flat, "fog", seed=0).max() <= 60


def test_a_fractal_without_wibble_is_the_mean_of_its_neighbours():
    (fractal,) = plasma_fractal(16, 16, 1e6, generators(1)).astype(float)
    for step in (8, 4, 2):
        half = step // 2
        # The largest step's midpoints carry the only wibble there is.
        for row in range(0, 16, step):
            for column in range(0, 16, step):
                at = [fractal[(row + a) % 16, (column + b) % 16] for a in (0, step) for b in (0, step)]
                assert fractal[row + half, column + half] == pytest.approx(np.mean(at), abs=1e-6)
                up = fractal[(row - half) % 16, column + half]
                side = [at[0], at[1], fractal[row + half, column + half], up]
                assert fractal[row, column + half] == pytest.approx(np.mean(side), abs=1e-6)
                left = fractal[row + half, (column - half) % 16]
                side = [at[0], at[2], fractal[row + half, column + half], left]
                assert fractal[row + half, column] == pytest.approx(np.mean(side), abs=1e-6)


@pytest.mark.parametrize("decay", [1.4, 2.0, 3.0])
def test_the_wibble_falls_by_the_square_of_the_decay(decay):
    fractals = plasma_fractal(128, 128, decay, generators(20)).astype(float)
    assert fractals.min(axis=(1, 2)) == pytest.approx(0)
    assert fractals.max(axis=(1, 2)) == pytest.approx(1)

    def wibble(step):
        corners = fractals[:, ::step, ::step]
        mean = sum(np.roll(corners, (-a, -b), axis=(1, 2)) for a in (0, 1) for b in (0, 1)) / 4
        return (fractals[:, step // 2 :: step, step // 2 :: step] - mean).std(axis=(1, 2))

    assert np.mean(wibble(4) / wibble(2)) == pytest.approx(decay**2, rel=0.03)


def test_fractals_are_cut_from_the_least_power_of_two():
    whole = plasma_fractal(64, 64, 2.0, generators(2))
    assert np.array_equal(plasma_fractal(40, 33, 2.0, generators(2)), whole[:, :40, :33])
    assert np.array_equal(plasma_fractal(33, 64, 2.0, generators(2)), whole[:, :33])


@cases
def test_brightness_adds_to_the_value_of_hsv(constants, severity):
    (offset,) = CONSTANTS[constants]["brightness"][severity - 1]
    pixels = colours().astype(float) / 255
    expected = []
    for pixel in pixels:
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        expected.append(colorsys.hsv_to_rgb(hue, saturation, min(value + offset, 1)))
    found = CORRUPTIONS["brightness"](pixels.astype(np.float32).reshape(1, 15, 20, 3), (offset,), [])
    np.testing.assert_allclose(found.reshape(-1, 3), expected, atol=1e-6)


@cases
def test_brightness_of_grey_is_an_offset_in_grey_levels(constants, severity):
    (offset,) = CONSTANTS[constants]["brightness"][severity - 1]
    grey = np.full((32, 32, 3), 80, dtype=np.uint8)
    assert np.all(corrupt(grey, "brightness", severity=severity, constants=constants, seed=0) == int(80 + 255 * offset))
