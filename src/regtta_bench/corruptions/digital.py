"""Noise, contrast, pixelation, JPEG compression and elastic transforms."""

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dct, dctn, idctn
from scipy.ndimage import gaussian_filter1d

from regtta_bench.corruptions.constants import Bytes, Floats, Generators, Parameters, to_bytes, to_floats


def gaussian_noise(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Return ``x + sd · ε`` with standard normal ε."""
    (sd,) = params
    noise = np.empty_like(images)
    for own, generator in zip(noise, generators, strict=True):
        generator.standard_normal(dtype=np.float32, out=own)
    return images + np.float32(sd) * noise


def shot_noise(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Return ``Poisson(c · x) / c``, of mean x and variance x / c."""
    (count,) = params
    rates = images * np.float32(count)
    drawn = [generator.poisson(rate) for rate, generator in zip(rates, generators, strict=True)]
    return np.stack(drawn).astype(np.float32) / np.float32(count)


def impulse_noise(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Add salt-and-pepper noise: set each value to 0 with probability c/2 and to 1 with probability c/2."""
    (share,) = params
    chance = np.empty_like(images)
    for own, generator in zip(chance, generators, strict=True):
        generator.random(dtype=np.float32, out=own)
    peppered = np.where(chance < np.float32(share / 2), np.float32(0), images)
    return np.where(chance >= np.float32(1 - share / 2), np.float32(1), peppered)


def contrast(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Compute ``x̄ + c · (x − x̄)`` with the mean x̄ of each channel of each image. Deterministic."""
    (factor,) = params
    # One image at a time: over a batch, numpy may sum in another order.
    means = np.stack([image.mean(axis=(0, 1), keepdims=True, dtype=np.float64) for image in images]).astype(np.float32)
    return means + np.float32(factor) * (images - means)


def pixelate(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Shrink each side n to ⌊c · n⌋ with a box filter, then enlarge it to n by nearest neighbour. Deterministic."""
    (share,) = params
    height, width = images.shape[1:3]
    small = (int(width * share), int(height * share))

    def change(image: Image.Image) -> Image.Image:
        return image.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.NEAREST)

    return _map_pillow_images(images, change)


def jpeg_compression(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Encode as JPEG of quality c with Pillow and decode again. Deterministic."""
    (quality,) = params

    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(quality))
        return Image.open(file)

    return _map_pillow_images(images, change)


def _map_pillow_images(images: Floats, change: Callable[[Image.Image], Image.Image]) -> Floats:
    """Apply ``change`` to every image as a Pillow image."""
    changed: list[Bytes] = [np.asarray(change(Image.fromarray(image))) for image in to_bytes(images)]
    return to_floats(np.stack(changed))


# Padding: mirrored about the last pixel (d c b | a b c d), or about its outer edge (c b a | a b c d).
Border = Literal["pixel", "edge"]


def elastic_transform(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Apply a random affine map, then displace every pixel by ``displacement`` times a smooth random field.

    The affine map moves three corners of a centred square, whose half side is a third of the image's smaller side, by
    U(−shift, shift) along each axis. The fields of both axes are U(−1, 1), smoothed by a Gaussian of ``sigma``. Both
    maps are sampled bilinearly, one after the other.

    Args:
        images: images in [0, 1], (N, H, W, 3).
        params: displacement, sigma and shift, in pixels.
        generators: one generator per image.
    """
    displacement, sigma, shift = params
    height, width = images.shape[1:3]
    moves = np.stack([generator.uniform(-shift, shift, (3, 2)) for generator in generators])
    rows, columns = _affine(height, width, moves)
    moved = bilinear_sample(images, rows, columns, "pixel")
    if displacement == 0:
        return moved
    fields = np.stack([generator.random((2, height, width), dtype=np.float32) for generator in generators]) * 2 - 1
    offsets = gaussian_smooth(fields.astype(np.float64), sigma) * displacement
    rows = np.arange(height)[:, None] + offsets[:, 0]
    columns = np.arange(width) + offsets[:, 1]
    return bilinear_sample(moved, rows, columns, "edge")


def _affine(height: int, width: int, moves: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the source rows and columns (N, H, W) of the affine map that moves three points by ``moves`` (N, 3, 2)."""
    x, y, half = width // 2, height // 2, min(height, width) // 3
    points = np.array([[x + half, y + half], [x + half, y - half], [x - half, y - half]], dtype=np.float64)
    moved = points + moves
    # Two sides of the moved triangle, u from its second point to the first and v from the third to the second, were
    # (0, 2·half) and (2·half, 0). A position is its second point plus a·u + b·v, with a and b by Cramer's rule.
    u, v = moved[:, 0] - moved[:, 1], moved[:, 1] - moved[:, 2]
    (ux, uy), (vx, vy), (corner_x, corner_y) = (values.T[..., None, None] for values in (u, v, moved[:, 1]))
    scale = 2 * half / (ux * vy - uy * vx)
    down, right = np.arange(height)[:, None] - corner_y, np.arange(width) - corner_x
    rows = points[1, 1] + scale * (right * vy - down * vx)
    columns = points[1, 0] + scale * (down * ux - right * uy)
    return rows, columns


def gaussian_smooth(fields: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Smooth fields (..., H, W) by a Gaussian of ``sigma`` along both axes, truncated at 3 sigma, reflecting borders.

    With reflecting borders the filter is diagonal in the basis of the discrete cosine transform, so the cost does not
    depend on ``sigma``. Matrix products would be as cheap, but a BLAS thread pool waits for all of its threads at each
    product, which is many times slower on busy cores.
    """
    height, width = fields.shape[-2:]
    waves = dctn(fields, axes=(-2, -1))
    waves *= _response(height, sigma)[:, None] * _response(width, sigma)
    result: NDArray[np.float64] = idctn(waves, axes=(-2, -1), overwrite_x=True)
    return result


@lru_cache(maxsize=16)
def _response(size: int, sigma: float) -> NDArray[np.float64]:
    """Return the frequency response (size,) of the Gaussian filter along an axis, from its impulse response."""
    impulse = np.zeros(size)
    impulse[0] = 1
    response: NDArray[np.float64] = dct(gaussian_filter1d(impulse, sigma, mode="reflect", truncate=3)) / dct(impulse)
    return response


def bilinear_sample(images: Floats, rows: NDArray[np.float64], columns: NDArray[np.float64], border: Border) -> Floats:
    """Sample images (N, H, W, 3) bilinearly at the positions ``rows`` and ``columns`` (N, H, W)."""
    count, height, width, channels = images.shape
    top, left = np.floor(rows), np.floor(columns)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]
    upper, lower = (_fold(top.astype(int) + i, height, border) * width for i in range(2))
    first, second = (_fold(left.astype(int) + i, width, border) for i in range(2))
    pixels = images.reshape(-1, channels)
    start = (np.arange(count) * height * width)[:, None, None]

    def along(row: NDArray[np.int_]) -> Floats:
        at: Floats = pixels.take(start + row + first, axis=0)
        line: Floats = at + right * (pixels.take(start + row + second, axis=0) - at)
        return line

    above = along(upper)
    sampled: Floats = above + down * (along(lower) - above)
    return sampled


def _fold(indices: NDArray[np.int_], size: int, border: Border) -> NDArray[np.int_]:
    """Mirror indices beyond the ends of an axis back into it.

    Example:
        >>> beyond = np.array([-2, -1, 0, 3, 4])
        >>> _fold(beyond, 4, "pixel").tolist(), _fold(beyond, 4, "edge").tolist()
        ([2, 1, 0, 3, 2], [1, 0, 0, 3, 3])
    """
    gap = 2 if border == "pixel" else 0
    wrapped = indices % (2 * size - gap)
    return np.minimum(wrapped, (2 * size - gap) - wrapped - (0 if gap else 1))
