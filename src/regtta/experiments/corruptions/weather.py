"""Weather: each takes images (N, H, W, 3) in [0, 1], the figures, and a generator an image."""

import numpy as np

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Floats, Generators
from regtta.experiments.corruptions.kernels import centre_zoom, line_blur
from regtta.experiments.corruptions.plasma import plasma

# Red, green and blue in grey: ITU-R BT.601.
GREY = (0.299, 0.587, 0.114)


def snow(images: Floats, figures: Parameters, generators: Generators) -> Floats:
    """A whitened image and falling flakes: ``mix·x + (1 − mix)·max(x, 1.5·grey(x) + 0.5) + layer + its half turn``.

    The layer (H, W) is drawn from N(loc, scale²), zoomed at its centre, set to 0 below the threshold, cut off at 1 and
    blurred along a line at an angle uniform in −135° … −45°.
    """
    loc, scale, zoom, threshold, radius, sigma, mix = figures
    layers = np.empty(images.shape[:3], dtype=np.float32)
    for layer, generator in zip(layers, generators, strict=True):
        generator.standard_normal(dtype=np.float32, out=layer)
    degrees = np.array([generator.uniform(-135, -45) for generator in generators])
    layers = centre_zoom(layers * np.float32(scale) + np.float32(loc), zoom)
    layers = np.where(layers < threshold, np.float32(0), np.clip(layers, 0, 1))
    layers = line_blur(layers, int(radius), sigma, degrees)
    flakes = (layers + layers[:, ::-1, ::-1])[..., None]
    red, green, blue = (images[..., channel] * np.float32(weight) for channel, weight in enumerate(GREY))
    white = (red + green + blue)[..., None] * np.float32(1.5) + np.float32(0.5)
    snowy: Floats = np.float32(mix) * images + np.float32(1 - mix) * np.maximum(images, white) + flakes
    return snowy


def fog(images: Floats, figures: Parameters, generators: Generators) -> Floats:
    """``(x + amount · plasma) · max(x) / (max(x) + amount)``, the maximum that of each image."""
    amount, decay = figures
    height, width = images.shape[1:3]
    mist = plasma(height, width, decay, generators)[..., None]
    brightest = images.max(axis=(1, 2, 3), keepdims=True)
    foggy: Floats = (images + np.float32(amount) * mist) * (brightest / (brightest + np.float32(amount)))
    return foggy


def brightness(images: Floats, figures: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """The value of HSV plus c, at most 1; hue and saturation stay. Draws nothing.

    The value is the largest of the channels, and at a given hue and saturation all three are multiples of it. A black
    pixel has no saturation and turns grey.
    """
    (offset,) = figures
    value = images.max(axis=-1, keepdims=True)
    brighter = np.minimum(value + np.float32(offset), np.float32(1))
    factor = brighter / np.where(value > 0, value, np.float32(1))
    brightened: Floats = np.where(value > 0, images * factor, brighter)
    return brightened
