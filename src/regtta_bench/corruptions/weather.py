"""Snow, fog and brightness, with plasma fractals."""

import numpy as np

from regtta_bench.corruptions.blur import centre_zoom, line_blur
from regtta_bench.corruptions.constants import Floats, Generators, Parameters


def plasma_fractal(height: int, width: int, decay: float, generators: Generators) -> Floats:
    """Return one fractal per generator, (N, height, width), cropped from a square map scaled to [0, 1].

    The side of the map is the smallest power of two that covers both. It starts with one point at 0; at each halving of
    the grid, the midpoints of squares and then of their sides are set to the mean of their four neighbours, with
    periodic borders, plus ``w · U(−w, w)``. The amplitude w is divided by ``decay`` at each halving.

    Example:
        >>> fractal = plasma_fractal(40, 50, 2.0, [np.random.default_rng(0)])
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
        points = _refine(points, (noise * 2 - 1) * np.float32(amplitude**2))
        amplitude, used = amplitude / decay, used + 3 * cells
    lowest = points.min(axis=(1, 2), keepdims=True)
    span = points.max(axis=(1, 2), keepdims=True) - lowest
    scaled: Floats = (points - lowest) / span
    return scaled[:, :height, :width]


def _refine(points: Floats, noise: Floats) -> Floats:
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


# Luma coefficients of red, green and blue: ITU-R BT.601.
LUMA = (0.299, 0.587, 0.114)


def snow(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Whiten the image and add snowflakes: ``mix·x + (1 − mix)·max(x, 1.5·grey(x) + 0.5) + layer + rot180(layer)``.

    The layer (H, W) is drawn from N(loc, scale²), zoomed at its centre, set to 0 below the threshold, clipped at 1 and
    motion-blurred at an angle uniform in −135° … −45°.
    """
    loc, scale, zoom, threshold, radius, sigma, mix = params
    layers = np.empty(images.shape[:3], dtype=np.float32)
    for layer, generator in zip(layers, generators, strict=True):
        generator.standard_normal(dtype=np.float32, out=layer)
    degrees = np.array([generator.uniform(-135, -45) for generator in generators])
    layers = centre_zoom(layers * np.float32(scale) + np.float32(loc), zoom)
    layers = np.where(layers < threshold, np.float32(0), np.clip(layers, 0, 1))
    layers = line_blur(layers, int(radius), sigma, degrees)
    flakes = (layers + layers[:, ::-1, ::-1])[..., None]
    red, green, blue = (images[..., channel] * np.float32(weight) for channel, weight in enumerate(LUMA))
    white = (red + green + blue)[..., None] * np.float32(1.5) + np.float32(0.5)
    snowy: Floats = np.float32(mix) * images + np.float32(1 - mix) * np.maximum(images, white) + flakes
    return snowy


def fog(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Compute ``(x + amount · plasma) · max(x) / (max(x) + amount)`` with the maximum of each image."""
    amount, decay = params
    height, width = images.shape[1:3]
    mist = plasma_fractal(height, width, decay, generators)[..., None]
    brightest = images.max(axis=(1, 2, 3), keepdims=True)
    foggy: Floats = (images + np.float32(amount) * mist) * (brightest / (brightest + np.float32(amount)))
    return foggy


def brightness(images: Floats, params: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """Add c to the value of HSV, clipped at 1, keeping hue and saturation. Deterministic.

    The value is the largest of the channels, and at a given hue and saturation all three are multiples of it. A black
    pixel has no saturation and becomes grey.
    """
    (offset,) = params
    value = images.max(axis=-1, keepdims=True)
    brighter = np.minimum(value + np.float32(offset), np.float32(1))
    factor = brighter / np.where(value > 0, value, np.float32(1))
    brightened: Floats = np.where(value > 0, images * factor, brighter)
    return brightened
