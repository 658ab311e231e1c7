"""Blurs: each takes images (N, H, W, 3) in [0, 1], the figures, and a generator an image."""

import math

import numpy as np

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Floats, Generators
from regtta.experiments.corruptions.kernels import centre_zoom, disk_blur, line_blur


def defocus_blur(images: Floats, figures: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """An aliased disk with a blurred edge. Draws nothing."""
    radius, sigma = figures
    return disk_blur(images, radius, sigma)


def motion_blur(images: Floats, figures: Parameters, generators: Generators) -> Floats:
    """A one-sided Gaussian line at an angle uniform in ±45°."""
    radius, sigma = figures
    degrees = np.array([generator.uniform(-45, 45) for generator in generators])
    return line_blur(images, int(radius), sigma, degrees)


def zoom_blur(images: Floats, figures: Parameters, generators: Generators) -> Floats:  # noqa: ARG001
    """The mean of x and of its centre zooms by 1, 1 + step, … below the end. Draws nothing."""
    end, step = figures
    factors = zoom_factors(end, step)
    total = images.copy()
    for factor in factors:
        total += centre_zoom(images, factor)
    return total / np.float32(len(factors) + 1)


def zoom_factors(end: float, step: float) -> tuple[float, ...]:
    """1, 1 + step, 1 + 2·step, … below ``end``.

    Example:
        >>> [round(factor, 2) for factor in zoom_factors(1.06, 0.01)]
        [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
    """
    count = math.ceil((end - 1) / step - 1e-9)
    return tuple(1 + i * step for i in range(count))
