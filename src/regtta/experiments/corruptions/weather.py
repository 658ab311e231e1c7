"""Weather corruptions of images (N, H, W, 3) in [0, 1], given their parameters and one generator per image."""

import numpy as np

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Floats, Generators
from regtta.experiments.corruptions.kernels import centre_zoom, line_blur
from regtta.experiments.corruptions.plasma import plasma

# Luma coefficients of red, green and blue: ITU-R BT.601.
GREY = (0.299, 0.587, 0.114)


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
    red, green, blue = (images[..., channel] * np.float32(weight) for channel, weight in enumerate(GREY))
    white = (red + green + blue)[..., None] * np.float32(1.5) + np.float32(0.5)
    snowy: Floats = np.float32(mix) * images + np.float32(1 - mix) * np.maximum(images, white) + flakes
    return snowy


def fog(images: Floats, params: Parameters, generators: Generators) -> Floats:
    """Compute ``(x + amount · plasma) · max(x) / (max(x) + amount)`` with the maximum of each image."""
    amount, decay = params
    height, width = images.shape[1:3]
    mist = plasma(height, width, decay, generators)[..., None]
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
