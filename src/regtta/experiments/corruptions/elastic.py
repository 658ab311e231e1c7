"""The elastic transform: a random affine map, then a random smooth displacement of every pixel."""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, dctn, idctn
from scipy.ndimage import gaussian_filter1d

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Floats, Generators

# Beyond the border: mirrored about the last pixel (d c b | a b c d), or about its outer edge (c b a | a b c d).
Border = Literal["pixel", "edge"]


def elastic_transform(images: Floats, figures: Parameters, generators: Generators) -> Floats:
    """Move three points by ±shift each way, then every pixel by ``displacement`` times a smooth random field.

    The points are corners of a square around the centre, its half side a third of the image's smaller side; the image
    follows by the affine map that moves them so. The fields of both axes are U(−1, 1), smoothed by a Gaussian of
    ``sigma``. Both maps are read bilinearly, one after the other.

    Args:
        images: (N, H, W, 3) in [0, 1].
        figures: Displacement, sigma and shift, in pixels.
        generators: One an image.
    """
    displacement, sigma, shift = figures
    height, width = images.shape[1:3]
    moves = np.stack([generator.uniform(-shift, shift, (3, 2)) for generator in generators])
    rows, columns = _affine(height, width, moves)
    moved = sample(images, rows, columns, "pixel")
    if displacement == 0:
        return moved
    fields = np.stack([generator.random((2, height, width), dtype=np.float32) for generator in generators]) * 2 - 1
    offsets = smoothed(fields.astype(np.float64), sigma) * displacement
    rows = np.arange(height)[:, None] + offsets[:, 0]
    columns = np.arange(width) + offsets[:, 1]
    return sample(moved, rows, columns, "edge")


def _affine(height: int, width: int, moves: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where pixels come from, as rows and columns (N, H, W), when three points (x, y) move by ``moves`` (N, 3, 2)."""
    x, y, half = width // 2, height // 2, min(height, width) // 3
    points = np.array([[x + half, y + half], [x + half, y - half], [x - half, y - half]], dtype=np.float64)
    moved = points + moves
    # Two sides of the moved triangle, u from its second point to the first and v from the third to the second, were
    # (0, 2·half) and (2·half, 0). A place is its second point plus a·u + b·v, with a and b by Cramer's rule.
    u, v = moved[:, 0] - moved[:, 1], moved[:, 1] - moved[:, 2]
    (ux, uy), (vx, vy), (corner_x, corner_y) = (values.T[..., None, None] for values in (u, v, moved[:, 1]))
    scale = 2 * half / (ux * vy - uy * vx)
    down, right = np.arange(height)[:, None] - corner_y, np.arange(width) - corner_x
    rows = points[1, 1] + scale * (right * vy - down * vx)
    columns = points[1, 0] + scale * (down * ux - right * uy)
    return rows, columns


def smoothed(fields: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Smooth fields (..., H, W) by a Gaussian of ``sigma`` in both axes: borders reflected, cut off at 3 sigma.

    With reflected borders, the cosines of the discrete cosine transform pass the filter unchanged but for a factor, so
    the cost does not depend on ``sigma``. Products with matrices would cost as little, but the thread pool of a BLAS
    waits for all of its threads at each product, which takes many times as long on cores that are busy otherwise.
    """
    height, width = fields.shape[-2:]
    waves = dctn(fields, axes=(-2, -1))
    waves *= _response(height, sigma)[:, None] * _response(width, sigma)
    result: NDArray[np.float64] = idctn(waves, axes=(-2, -1), overwrite_x=True)
    return result


@lru_cache(maxsize=16)
def _response(size: int, sigma: float) -> NDArray[np.float64]:
    """By which factor (size,) the Gaussian filter of an axis changes each cosine: its answer to an impulse tells."""
    impulse = np.zeros(size)
    impulse[0] = 1
    response: NDArray[np.float64] = dct(gaussian_filter1d(impulse, sigma, mode="reflect", truncate=3)) / dct(impulse)
    return response


def sample(images: Floats, rows: NDArray[np.float64], columns: NDArray[np.float64], border: Border) -> Floats:
    """The images (N, H, W, 3) at the places ``rows`` and ``columns`` (N, H, W), bilinear."""
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
    """Indices beyond an axis, mirrored back into it.

    Example:
        >>> beyond = np.array([-2, -1, 0, 3, 4])
        >>> _fold(beyond, 4, "pixel").tolist(), _fold(beyond, 4, "edge").tolist()
        ([2, 1, 0, 3, 2], [1, 0, 0, 3, 3])
    """
    gap = 2 if border == "pixel" else 0
    wrapped = indices % (2 * size - gap)
    return np.minimum(wrapped, (2 * size - gap) - wrapped - (0 if gap else 1))
