"""Blurs on flat fields, impulses and photographs, against scipy with kernels built here."""

import math

import numpy as np
import pytest
from scipy import ndimage

from regtta_bench.corruptions import CONSTANTS, CORRUPTIONS, SEVERITIES, corrupt
from regtta_bench.corruptions.apply import image_generator
from regtta_bench.corruptions.blur import centre_zoom, line_blur, zoom_factors

cases = pytest.mark.parametrize(
    ("constants", "severity"), [(constants, severity) for constants in CONSTANTS for severity in SEVERITIES]
)


def figures_of(constants, name, severity):
    return CONSTANTS[constants][name][severity - 1]


def impulse(side):
    image = np.zeros((1, side, side, 3), dtype=np.float32)
    image[0, side // 2, side // 2] = 1
    return image


def disk(radius, sigma):
    reach = 1 if radius <= 8 else 2
    span = np.arange(-int(radius) - reach, int(radius) + reach + 1)
    hard = (span[:, None] ** 2 + span**2 <= radius**2).astype(float)
    window = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return ndimage.convolve(hard / hard.sum(), np.outer(window, window) / window.sum() ** 2, mode="constant")


@pytest.mark.parametrize("name", ["defocus_blur", "motion_blur", "zoom_blur"])
@cases
def test_a_flat_field_stays_as_it_is(name, constants, severity):
    levels = np.array([0, 37, 101, 128, 200, 254, 255], dtype=np.uint8)
    flat = np.broadcast_to(levels[:, None, None, None], (7, 36, 50, 3))
    assert np.array_equal(corrupt(flat, name, severity=severity, constants=constants, seed=0), flat)


@cases
def test_defocus_is_the_disk(photographs, constants, severity):
    radius, sigma = figures_of(constants, "defocus_blur", severity)
    kernel = disk(radius, sigma)
    spread = CORRUPTIONS["defocus_blur"](impulse(65), (radius, sigma), [])[0, :, :, 0]
    assert spread.sum() == pytest.approx(1, abs=1e-5)
    reach = len(kernel) // 2
    np.testing.assert_allclose(spread[32 - reach : 33 + reach, 32 - reach : 33 + reach], kernel, atol=1e-7)
    image = photographs(48)[0, :40].astype(np.float32) / 255
    expected = ndimage.convolve(image.astype(float), kernel[..., None], mode="mirror")
    np.testing.assert_allclose(CORRUPTIONS["defocus_blur"](image[None], (radius, sigma), [])[0], expected, atol=2e-6)


def test_defocus_kernels_are_the_known_ones():
    plus = CORRUPTIONS["defocus_blur"](impulse(33), (1, 0.01), [])[0, 15:18, 15:18, 0]
    np.testing.assert_allclose(plus, np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]) / 5, atol=1e-7)
    wide = CORRUPTIONS["defocus_blur"](impulse(33), (3, 0.01), [])[0, :, :, 0]
    assert np.count_nonzero(wide > 1e-9) == 29  # lattice points within 3 of the origin


@cases
def test_motion_blur_is_a_line_of_the_right_length_at_the_right_angle(constants, severity):
    radius, sigma = figures_of(constants, "motion_blur", severity)
    for seed in range(4):
        own = image_generator(seed, "motion_blur", severity, 0)
        spread = CORRUPTIONS["motion_blur"](impulse(101), (radius, sigma), [own])[0, :, :, 0]
        assert spread.sum() == pytest.approx(1, abs=1e-5)
        rows, columns = np.nonzero(spread)
        down, left = rows - 50, 50 - columns  # read from the right: the light runs to the left
        distance = np.hypot(down, left)
        assert left.min() == 0
        assert distance.max() == pytest.approx(2 * radius, abs=0.8)
        far = distance > 5
        assert np.all(np.abs(np.degrees(np.arctan2(down[far], left[far]))) <= 45 + 7)
        angle = math.radians(image_generator(seed, "motion_blur", severity, 0).uniform(-45, 45))
        expected = np.zeros((101, 101))
        for tap in range(2 * int(radius) + 1):  # near 45° two taps may share a pixel
            place = 50 - round(tap * math.sin(angle)), 50 - round(tap * math.cos(angle))
            expected[place] += math.exp(-(tap**2) / (2 * sigma**2))
        np.testing.assert_allclose(spread, expected / expected.sum(), atol=1e-6)


def test_motion_blur_uses_the_whole_range_of_angles():
    generators = [image_generator(0, "motion_blur", 1, index) for index in range(200)]
    spread = CORRUPTIONS["motion_blur"](np.repeat(impulse(65), 200, axis=0), (10, 8), generators)[..., 0]
    down, right = np.arange(-32, 33)[:, None], np.arange(-32, 33)
    degrees = np.degrees(np.arctan2((spread * down).sum(axis=(1, 2)), -(spread * right).sum(axis=(1, 2))))
    assert -46 < degrees.min() < -40
    assert 40 < degrees.max() < 46
    assert np.std(degrees) == pytest.approx(90 / math.sqrt(12), rel=0.1)


@pytest.mark.parametrize(("degrees", "axis", "flip"), [(0, 1, 1), (90, 0, 1), (180, 1, -1), (-90, 0, -1)])
def test_lines_along_the_axes_are_one_dimensional_correlations(photographs, degrees, axis, flip):
    image = photographs(48)[1, :, :40].astype(np.float32) / 255
    weights = np.concatenate([np.zeros(12), np.exp(-(np.arange(13) ** 2) / 18.0)])
    expected = ndimage.correlate1d(image.astype(float), (weights / weights.sum())[::flip], axis=axis, mode="nearest")
    np.testing.assert_allclose(line_blur(image[None], 6, 3.0, np.array([degrees]))[0], expected, atol=2e-6)


def zoomed(image, factor):
    """Return the centre of ``image`` (H, W, C), zoomed by scipy as in the definition."""
    crop = [math.ceil(round(side / factor, 9)) for side in image.shape[:2]]
    top, left = ((side - kept) // 2 for side, kept in zip(image.shape[:2], crop, strict=True))
    large = ndimage.zoom(image[top : top + crop[0], left : left + crop[1]], (factor, factor, 1), order=1)
    top, left = ((big - side) // 2 for big, side in zip(large.shape[:2], image.shape[:2], strict=True))
    return large[top : top + image.shape[0], left : left + image.shape[1]]


@pytest.mark.parametrize("factor", [1, 1.01, 1.05, 1.12, 1.3, 2, 2.5, 4.5])
def test_centre_zoom_is_scipys(photographs, factor):
    image = photographs(60)[2, :45].astype(np.float64) / 255
    found = centre_zoom(image[None].astype(np.float32), factor)[0]
    np.testing.assert_allclose(found, zoomed(image, factor), atol=1e-6)
    np.testing.assert_allclose(centre_zoom(image[None, ..., 0].astype(np.float32), factor)[0], found[..., 0], atol=1e-7)


@cases
def test_zoom_blur_is_the_mean_of_the_image_and_its_zooms(photographs, constants, severity):
    end, step = figures_of(constants, "zoom_blur", severity)
    image = photographs(64)[3].astype(np.float64) / 255
    hundredths = range(100, round(100 * end), round(100 * step))
    expected = (image + sum(zoomed(image, i / 100) for i in hundredths)) / (len(hundredths) + 1)
    found = CORRUPTIONS["zoom_blur"](image[None].astype(np.float32), (end, step), [])[0]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_zoom_factors_stop_before_the_end():
    assert zoom_factors(1.31, 0.03) == pytest.approx([1 + 0.03 * i for i in range(11)])
    assert [len(zoom_factors(*figures)) for figures in CONSTANTS["imagenet"]["zoom_blur"]] == [11, 16, 11, 13, 11]
    assert [len(zoom_factors(*figures)) for figures in CONSTANTS["cifar"]["zoom_blur"]] == [6, 11, 16, 21, 26]


@pytest.mark.parametrize("name", ["defocus_blur", "motion_blur"])
def test_a_step_edge_becomes_a_ramp_as_wide_as_the_kernel(name):
    step = np.zeros((1, 64, 128, 3), dtype=np.uint8)
    step[:, :, 64:] = 255
    row = corrupt(step, name, severity=1, seed=0)[0, 32, :, 0].astype(int)
    assert np.all(np.diff(row) >= 0)
    assert np.all(row[:40] == 0)
    assert np.all(row[88:] == 255)
    assert np.count_nonzero((row > 0) & (row < 255)) >= 4
