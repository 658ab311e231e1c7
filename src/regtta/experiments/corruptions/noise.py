"""Pixel-wise noise for images (N, H, W, 3) in [0, 1], given its parameters and one generator per image."""

import numpy as np

from regtta.experiments.corruptions.constants import Parameters
from regtta.experiments.corruptions.images import Floats, Generators


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
