"""Defocus, motion and zoom blur, with their kernels."""

import math

import numpy as np
from numpy.typing import NDArray

from regtta_bench.corruptions.constants import Floats, Generators, Parameters


def line_blur(images: Floats, radius: int, sigma: float, degrees: NDArray[np.float64]) -> Floats:
    """Blur along a one-sided Gaussian line, ``Σᵢ kᵢ · x(p + i·(cos α, sin α))`` with ``kᵢ ∝ exp(−i² / 2σ²)``.

    As in ImageMagick, a radius r gives 2r + 1 taps, ``i = 0 … 2r``, each at the nearest pixel, with edges replicated.

    Args:
        images: images, (N, H, W) or (N, H, W, 3).
        radius: radius r, in pixels.
        sigma: standard deviation σ, in pixels.
        degrees: angle α of each image, (N,), from the right towards the bottom.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    angles = np.deg2rad(degrees)[:, None]
    down = np.ceil(steps * np.sin(angles) - 0.5).astype(int)
    right = np.ceil(steps * np.cos(angles) - 0.5).astype(int)
    # The line starts at the pixel itself, so the offsets span 0 in both directions.
    top, left = -down.min(), -right.min()
    sides = ((top, down.max()), (left, right.max()))
    padded = np.pad(images, ((0, 0), *sides, *((0, 0),) * (images.ndim - 3)), mode="edge")
    height, width = images.shape[1:3]
    blurred = np.zeros_like(images)
    term = np.empty_like(images[0])
    for own, wide, rows, columns in zip(blurred, padded, top + down, left + right, strict=True):
        for weight, row, column in zip(weights, rows, columns, strict=True):
            np.multiply(wide[row : row + height, column : column + width], weight, out=term)
            np.add(own, term, out=own)
    return blurred


def disk_blur(images: Floats, radius: float, sigma: float) -> Floats:
    """Average over the disk ``dx² + dy² ≤ radius²`` of pixels, with its edge smoothed by a Gaussian of ``sigma``.

    The Gaussian is truncated at 1 pixel for radii up to 8, and at 2 above. The image is padded by reflection about its
    last pixel.

    Args:
        images: images, (N, H, W, 3).
        radius: radius of the disk, in pixels.
        sigma: standard deviation of the smoothing, in pixels.
    """
    reach = 1 if radius <= 8 else 2
    pad = math.floor(radius) + reach
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="reflect")
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    disks = _disk_mean(padded, radius)
    height, width = images.shape[1:3]
    rows = sum(weight * disks[:, i : i + height] for i, weight in enumerate(weights))
    blurred: Floats = sum(weight * rows[:, :, i : i + width] for i, weight in enumerate(weights))
    return blurred


def _disk_mean(images: Floats, radius: float) -> Floats:
    """Average over the disk where it fits into the image; the result has ⌊radius⌋ pixels fewer on every side.

    The disk is a stack of rows. The sum of 2w + 1 neighbours for a row of half-width w is that for w − 1 plus two more.
    """
    reach = math.floor(radius)
    half_widths = [math.floor(math.sqrt(radius**2 - dy**2)) for dy in range(reach + 1)]
    height, width = images.shape[1] - 2 * reach, images.shape[2] - 2 * reach
    row = images[:, :, reach : reach + width].copy()
    total = np.zeros((len(images), height, width, images.shape[3]), dtype=np.float32)
    for half in range(reach + 1):
        if half:
            row += images[:, :, reach - half : reach - half + width]
            row += images[:, :, reach + half : reach + half + width]
        for dy in (dy for dy, own in enumerate(half_widths) if own == half):
            total += row[:, reach + dy : reach + dy + height]
            if dy:
                total += row[:, reach - dy : reach - dy + height]
    pixels = sum((2 * half + 1) * (2 if dy else 1) for dy, half in enumerate(half_widths))
    total /= np.float32(pixels)
    return total


def centre_zoom(images: Floats, factor: float) -> Floats:
    """Zoom bilinearly into the centre of the images by ``factor``.

    The middle ⌈n / factor⌉ pixels of an axis of n are stretched with aligned corners, and the middle n are kept.

    Args:
        images: images, (N, H, W) or (N, H, W, 3).
        factor: zoom factor, at least 1.
    """
    return _zoom_axis(_zoom_axis(images, 1, factor), 2, factor)


def _zoom_axis(images: Floats, axis: int, factor: float) -> Floats:
    size = images.shape[axis]
    kept = math.ceil(size / factor - 1e-9)
    stretched = round(kept * factor)
    start, trim = (size - kept) // 2, (stretched - size) // 2
    positions = (trim + np.arange(size)) * ((kept - 1) / (stretched - 1))
    low = np.minimum(positions.astype(int), kept - 2)
    share = (positions - low).astype(np.float32).reshape(-1, *(1,) * (images.ndim - axis - 1))
    below = images.take(start + low, axis=axis)
    above: Floats = images.take(start + low + 1, axis=axis)
    above -= below
    above *= share
    above += below
    return above


def defocus_blur(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Blur by an aliased disk with a smoothed edge. Deterministic."""
    radius, sigma = params
    return disk_blur(images, radius, sigma)


def motion_blur(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Blur along a one-sided Gaussian line at an angle uniform in ±45°."""
    radius, sigma = params
    degrees = np.array([generator.uniform(-45, 45) for generator in generators])
    return line_blur(images, int(radius), sigma, degrees)


def zoom_blur(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Average x and its centre zooms by the factors 1, 1 + step, … below ``end``. Deterministic."""
    end, step = params
    factors = zoom_factors(end, step)
    total = images.copy()
    for factor in factors:
        total += centre_zoom(images, factor)
    return total / np.float32(len(factors) + 1)


def zoom_factors(end: float, step: float) -> tuple[float, ...]:
    """Return the factors 1, 1 + step, 1 + 2·step, … below ``end``.

    Example:
        >>> [round(factor, 2) for factor in zoom_factors(1.06, 0.01)]
        [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
    """
    count = math.ceil((end - 1) / step - 1e-9)
    return tuple(1 + i * step for i in range(count))
