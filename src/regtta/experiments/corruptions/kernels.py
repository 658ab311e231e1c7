"""What the blurs are made of: lines, disks and zooms, over a whole batch."""

import math

import numpy as np
from numpy.typing import NDArray

from regtta.experiments.corruptions.images import Floats


def line_blur(images: Floats, radius: int, sigma: float, degrees: NDArray[np.float64]) -> Floats:
    """A one-sided Gaussian line: ``Σᵢ kᵢ · x(p + i·(cos α, sin α))``, ``i = 0 … 2·radius``, ``kᵢ ∝ exp(−i² / 2σ²)``.

    As ImageMagick does it: a radius r makes 2r + 1 taps, each at the nearest pixel; beyond the border the edge goes on.

    Args:
        images: (N, H, W) or (N, H, W, 3).
        radius: r.
        sigma: σ, in pixels.
        degrees: α of each image, (N,), turning from right to down.
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
    """The mean over the disk ``dx² + dy² ≤ radius²`` of pixels, its edge blurred by a Gaussian of ``sigma``.

    The Gaussian is cut off at 1 pixel for radii up to 8, at 2 above. Beyond the border the image is mirrored at its
    last pixel.

    Args:
        images: (N, H, W, 3).
        radius: Of the disk, in pixels.
        sigma: Of its edge, in pixels.
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
    """The mean over the disk wherever it fits: ⌊radius⌋ pixels fewer on every side.

    A disk is a stack of rows. Those of half-width w are sums of 2w + 1 neighbours, built up from w − 1 by two more.
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
    """The centre of the images, ``factor`` times as large, bilinear.

    Of each axis of n pixels the middle ⌈n / factor⌉ are stretched, corner onto corner, and the middle n kept.

    Args:
        images: (N, H, W) or (N, H, W, 3).
        factor: At least 1.
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
