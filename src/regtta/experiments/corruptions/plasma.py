"""Plasma fractals by the diamond-square algorithm, for fog."""

import numpy as np

from regtta.experiments.corruptions.images import Floats, Generators


def plasma(height: int, width: int, decay: float, generators: Generators) -> Floats:
    """Return one fractal per generator, (N, height, width), cropped from a square map scaled to [0, 1].

    The side of the map is the smallest power of two that covers both. It starts with one point at 0; at each halving of
    the grid, the midpoints of squares and then of their sides are set to the mean of their four neighbours, with
    periodic borders, plus ``w · U(−w, w)``. The amplitude w is divided by ``decay`` at each halving.

    Example:
        >>> fractal = plasma(40, 50, 2.0, [np.random.default_rng(0)])
        >>> fractal.shape, bool(fractal.min() >= 0), bool(fractal.max() <= 1)
        ((1, 40, 50), True, True)
    """
    side = 1 << (max(height, width) - 1).bit_length()
    drawn = np.empty((len(generators), side * side - 1), dtype=np.float32)
    for own, generator in zip(drawn, generators, strict=True):
        generator.random(dtype=np.float32, out=own)
    points = np.zeros((len(generators), 1, 1), dtype=np.float32)
    amplitude, used = 1.0, 0
    while points.shape[1] < side:
        cells = points.shape[1] ** 2
        noise = drawn[:, used : used + 3 * cells].reshape(len(points), 3, *points.shape[1:])
        points = _halve(points, (noise * 2 - 1) * np.float32(amplitude**2))
        amplitude, used = amplitude / decay, used + 3 * cells
    lowest = points.min(axis=(1, 2), keepdims=True)
    span = points.max(axis=(1, 2), keepdims=True) - lowest
    scaled: Floats = (points - lowest) / span
    return scaled[:, :height, :width]


def _halve(points: Floats, noise: Floats) -> Floats:
    """Refine the map ``points`` (N, m, m) to (N, 2m, 2m), adding ``noise`` (N, 3, m, m) to the new points."""
    quarter = np.float32(0.25)
    below, right = np.roll(points, -1, axis=1), np.roll(points, -1, axis=2)
    middles = (points + below + right + np.roll(below, -1, axis=2)) * quarter + noise[:, 0]
    across = (points + right + middles + np.roll(middles, 1, axis=1)) * quarter + noise[:, 1]
    along = (points + below + middles + np.roll(middles, 1, axis=2)) * quarter + noise[:, 2]
    count, side, _ = points.shape
    finer = np.empty((count, 2 * side, 2 * side), dtype=np.float32)
    finer[:, ::2, ::2] = points
    finer[:, 1::2, 1::2] = middles
    finer[:, ::2, 1::2] = across
    finer[:, 1::2, ::2] = along
    return finer
