"""Contrast, the elastic transform, pixels and JPEG, against numpy, scipy and Pillow."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from regtta_bench.corruptions import CONSTANTS, CORRUPTIONS, SEVERITIES, corrupt
from regtta_bench.corruptions.apply import image_generator
from regtta_bench.corruptions.digital import bilinear_sample, gaussian_smooth

cases = pytest.mark.parametrize(
    ("constants", "severity"), [(constants, severity) for constants in CONSTANTS for severity in SEVERITIES]
)


@cases
def test_contrast_keeps_the_means_and_scales_the_deviations(photographs, constants, severity):
    (factor,) = CONSTANTS[constants]["contrast"][severity - 1]
    images = photographs(40)
    found = CORRUPTIONS["contrast"](images.astype(np.float32) / 255, (factor,), []).astype(float)
    x = images / 255
    np.testing.assert_allclose(found.mean(axis=(1, 2)), x.mean(axis=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(found.std(axis=(1, 2)), factor * x.std(axis=(1, 2)), rtol=1e-4)
    stored = corrupt(images, "contrast", severity=severity, constants=constants, seed=0)
    exact = 255 * (x.mean(axis=(1, 2), keepdims=True) * (1 - factor) + factor * x)
    assert np.all((exact - stored < 1 + 1e-3) & (exact - stored > -2e-3))


@pytest.mark.parametrize("shape", [(224, 224), (32, 32), (64, 44)])
@cases
def test_pixelate_makes_constant_blocks_of_their_means(shape, constants, severity):
    (share,) = CONSTANTS[constants]["pixelate"][severity - 1]
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    found = corrupt(image, "pixelate", severity=severity, constants=constants, seed=0)
    small = [int(side * share) for side in shape]
    # Each small pixel is the mean of the pixels whose centres it covers, and is seen where it is nearest.
    edges = [np.floor(np.arange(n + 1) * side / n + 0.5).astype(int) for n, side in zip(small, shape, strict=True)]
    sums = np.add.reduceat(np.add.reduceat(image.astype(float), edges[0][:-1], axis=0), edges[1][:-1], axis=1)
    means = sums / (np.diff(edges[0])[:, None, None] * np.diff(edges[1])[:, None])
    rows, columns = (((np.arange(side) + 0.5) * n / side).astype(int) for n, side in zip(small, shape, strict=True))
    np.testing.assert_allclose(found, means[rows][:, columns], atol=1.01)  # Pillow rounds after either axis
    for axis, at in enumerate((rows, columns)):
        same = np.flatnonzero(np.diff(at) == 0)
        assert np.array_equal(found.take(same, axis=axis), found.take(same + 1, axis=axis))


@cases
def test_jpeg_is_pillows_file_at_that_quality(photographs, tmp_path, constants, severity):
    (quality,) = CONSTANTS[constants]["jpeg_compression"][severity - 1]
    images = photographs(64)[::3, :, :50]
    found = corrupt(images, "jpeg_compression", severity=severity, constants=constants, seed=0)
    for image, result in zip(images, found, strict=True):
        Image.fromarray(image).save(tmp_path / "image.jpg", quality=quality)
        with Image.open(tmp_path / "image.jpg") as read:
            assert np.array_equal(result, np.asarray(read))


@cases
def test_elastic_transform_keeps_a_flat_field_flat(constants, severity):
    levels = np.array([0, 37, 101, 200, 255], dtype=np.uint8)
    flat = np.broadcast_to(levels[:, None, None, None], (5, 48, 64, 3))
    assert np.array_equal(corrupt(flat, "elastic_transform", severity=severity, constants=constants, seed=0), flat)


@pytest.mark.parametrize(("border", "mode"), [("pixel", "mirror"), ("edge", "reflect")])
def test_sampling_is_scipys(photographs, border, mode):
    images = photographs(48)[:2, :, :40].astype(np.float32) / 255
    rng = np.random.default_rng(0)
    rows, columns = rng.uniform(-120, 160, (2, 2, 48, 40))
    found = bilinear_sample(images, rows, columns, border)
    for n in range(2):
        for channel in range(3):
            expected = ndimage.map_coordinates(
                images[n, ..., channel].astype(float), [rows[n], columns[n]], order=1, mode=mode
            )
            np.testing.assert_allclose(found[n, ..., channel], expected, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.96, 2.4, 20.0, 170.8])
def test_the_smoothing_is_scipys_gaussian(sigma):
    field = np.random.default_rng(0).uniform(-1, 1, (64, 48))
    expected = ndimage.gaussian_filter(field, sigma, mode="reflect", truncate=3)
    np.testing.assert_allclose(gaussian_smooth(field[None], sigma)[0], expected, rtol=0, atol=1e-13)


def test_the_elastic_transform_needs_no_blas(photographs, monkeypatch):
    """The thread pool of a BLAS stalls on busy cores: products and solutions of equations must not go through it."""

    def refuse(*args, **kwargs):
        raise AssertionError("a call that may wait for the threads of a BLAS")

    images = photographs(64)
    expected = corrupt(images, "elastic_transform", severity=5, seed=0)
    for owner, name in [(np, "matmul"), (np, "dot"), (np, "tensordot"), (np.linalg, "solve"), (np.linalg, "inv")]:
        monkeypatch.setattr(owner, name, refuse)
    assert np.array_equal(corrupt(images, "elastic_transform", severity=5, seed=0), expected)


def ramps(height, width):
    """An image whose red is the row and whose green is the column, in shares of 100 pixels."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, rows * 0], axis=-1)[None].astype(np.float32) / 100


@pytest.mark.parametrize(("height", "width"), [(96, 96), (90, 120)])
def test_three_points_move_as_drawn_and_the_image_with_them(height, width):
    for index in range(5):
        own = image_generator(0, "elastic_transform", 1, index)
        moved = CORRUPTIONS["elastic_transform"](ramps(height, width), (0, 0, 6.0), [own])[0]
        moves = image_generator(0, "elastic_transform", 1, index).uniform(-6, 6, (3, 2))
        assert np.abs(moves).max() > 2
        half = min(height, width) // 3
        for (right, down), (dx, dy) in zip(((half, half), (half, -half), (-half, -half)), moves, strict=True):
            x, y = width // 2 + right, height // 2 + down
            place = [[y + dy], [x + dx]]
            assert ndimage.map_coordinates(moved[..., 0], place, order=1)[0] * 100 == pytest.approx(y, abs=0.01)
            assert ndimage.map_coordinates(moved[..., 1], place, order=1)[0] * 100 == pytest.approx(x, abs=0.01)


def test_displacements_are_smoothed_uniform_noise_of_the_requested_size():
    own = image_generator(0, "elastic_transform", 1, 0)
    ramp = ramps(200, 200)
    fields = 100 * (CORRUPTIONS["elastic_transform"](ramp, (20.0, 3.0, 0.0), [own]) - ramp)[0, 20:-20, 20:-20, :2]
    window = np.exp(-(np.arange(-9, 10) ** 2) / 18.0)
    window /= window.sum()
    expected = 20 * np.sqrt(1 / 3) * np.sum(window**2)  # sd of U(−1, 1), times the norm of the window in both axes
    assert fields[..., 0].std() == pytest.approx(expected, rel=0.1)
    assert fields[..., 1].std() == pytest.approx(expected, rel=0.1)
    assert abs(np.corrcoef(fields[..., 0].ravel(), fields[..., 1].ravel())[0, 1]) < 0.1
    smooth = np.corrcoef(fields[3:, :, 0].ravel(), fields[:-3, :, 0].ravel())[0, 1]
    assert smooth == pytest.approx(np.exp(-(3**2) / (4 * 3.0**2)), abs=0.05)


@pytest.mark.parametrize("figures", [(8.0, 3.0, 9.0), (60.0, 20.0, 15.0)])
def test_the_whole_elastic_transform_step_by_step(photographs, figures):
    """Borders included: the affine map mirrors about the last pixel, the displacement about the edge."""
    displacement, sigma, shift = figures
    image = photographs(64)[4, :48].astype(np.float64) / 255
    own = image_generator(0, "elastic_transform", 1, 0)
    found = CORRUPTIONS["elastic_transform"](image[None].astype(np.float32), figures, [own])[0]
    draws = image_generator(0, "elastic_transform", 1, 0)
    moves = draws.uniform(-shift, shift, (3, 2))
    fields = 2 * draws.random((2, 48, 64), dtype=np.float32).astype(float) - 1
    points = np.array([[32 + 16, 24 + 16], [32 + 16, 24 - 16], [32 - 16, 24 - 16]], dtype=float)
    forward = np.linalg.solve(np.column_stack([points, np.ones(3)]), points + moves)  # [x y 1] · forward = [x′ y′]
    rows, columns = np.mgrid[:48, :64]
    flat = np.stack([columns.ravel(), rows.ravel()], axis=-1) - forward[2]
    x, y = (flat @ np.linalg.inv(forward[:2])).T.reshape(2, 48, 64)
    dy, dx = (displacement * ndimage.gaussian_filter(field, sigma, mode="reflect", truncate=3) for field in fields)
    for channel in range(3):
        moved = ndimage.map_coordinates(image[..., channel], [y, x], order=1, mode="mirror")
        expected = ndimage.map_coordinates(moved, [rows + dy, columns + dx], order=1, mode="reflect")
        np.testing.assert_allclose(found[..., channel], expected, atol=2e-5)
