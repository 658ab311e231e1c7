"""Noise on flat fields, against the distributions themselves."""

import numpy as np
import pytest
from scipy import stats

from regtta_bench.corruptions import CONSTANTS, CORRUPTIONS, SEVERITIES, corrupt
from regtta_bench.corruptions.apply import image_generator

cases = pytest.mark.parametrize(
    ("constants", "severity"), [(constants, severity) for constants in CONSTANTS for severity in SEVERITIES]
)


def flat(level):
    return np.full((4, 96, 96, 3), level, dtype=np.uint8)


def check_moments(found, levels, chances):
    """Mean and variance of ``found`` are those of ``levels`` with ``chances``, within five standard errors."""
    mean = np.sum(levels * chances)
    central = [np.sum((levels - mean) ** power * chances) for power in (2, 4)]
    assert np.sum(chances) == pytest.approx(1)
    assert abs(found.mean() - mean) < 5 * np.sqrt(central[0] / found.size)
    assert abs(found.var() - central[0]) < 5 * np.sqrt((central[1] - central[0] ** 2) / found.size)


@cases
def test_gaussian_noise_is_normal_with_the_requested_sd(constants, severity):
    sd = CONSTANTS[constants]["gaussian_noise"][severity - 1][0]
    found = corrupt(flat(128), "gaussian_noise", severity=severity, constants=constants, seed=0).astype(float)
    edges = np.concatenate([[-np.inf], np.arange(1, 256) / 255, [np.inf]])  # level k is k/255 up to (k+1)/255
    check_moments(found, np.arange(256), np.diff(stats.norm.cdf(edges, loc=128 / 255, scale=sd)))
    if sd <= 0.12:  # clipping begins at four standard deviations
        assert found.std() / 255 == pytest.approx(sd, rel=0.01)


@cases
def test_shot_noise_is_poisson(constants, severity):
    count = CONSTANTS[constants]["shot_noise"][severity - 1][0]
    found = corrupt(flat(51), "shot_noise", severity=severity, constants=constants, seed=0).astype(float)
    photons = np.arange(1000)
    levels = np.minimum(photons * 255 // count, 255)
    check_moments(found, levels, stats.poisson.pmf(photons, 0.2 * count))
    # Before clipping and truncation the mean is x and the variance x / c.
    own = [image_generator(0, "shot_noise", severity, 0)]
    drawn = CORRUPTIONS["shot_noise"](np.full((1, 200, 200, 3), 0.2, dtype=np.float32), (count,), own).astype(float)
    assert drawn.mean() == pytest.approx(0.2, rel=0.02)
    assert drawn.var() == pytest.approx(0.2 / count, rel=0.03)


@cases
def test_impulse_noise_turns_the_share_to_black_and_white(constants, severity):
    share = CONSTANTS[constants]["impulse_noise"][severity - 1][0]
    found = corrupt(flat(100), "impulse_noise", severity=severity, constants=constants, seed=0)
    assert set(np.unique(found)) == {0, 100, 255}
    error = np.sqrt(share / 2 / found.size)
    for level in (0, 255):
        assert abs(np.mean(found == level) - share / 2) < 5 * error
    # Values are struck one by one, not pixels as a whole.
    struck = found != 100
    assert np.mean(struck.all(axis=-1)) == pytest.approx(share**3, abs=5 * np.sqrt(share**3 / (found.size / 3)) + 1e-4)


def test_noise_does_not_repeat_from_place_to_place():
    noise = corrupt(flat(128), "gaussian_noise", severity=1, seed=0).astype(float) - 128
    for one, two in ((noise[0], noise[1]), (noise[..., 0], noise[..., 1]), (noise[:, 1:], noise[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 0.03
