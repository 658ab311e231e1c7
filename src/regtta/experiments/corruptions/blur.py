"""Blur corruptions of images (N, H, W, 3) in [0, 1], given their parameters and one generator per image."""

import math

import numpy as np

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Floats, Generators
from regtta.experiments.corruptions.kernels import centre_zoom, disk_blur, line_blur


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
