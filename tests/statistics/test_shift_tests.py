"""False alarm rates and power of shift tests, with fixed seeds and bounds of three standard errors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regtta.statistics.moments import EwmaMoments
from regtta.statistics.shift_tests import (
    is_nonstationary,
    min_reweighting_divergence,
    shift_test,
    stationarity_statistic,
)

LEVEL = 0.05


def gaussian(rows, width, generator):
    return torch.randn(rows, width, generator=generator, dtype=torch.float64)


def exponential(rows, width, generator):
    return -torch.rand(rows, width, generator=generator, dtype=torch.float64).log()


def laplace(rows, width, generator):
    """Draw from a heavy-tailed distribution with independent dimensions and kurtosis 6."""
    return gaussian(rows, width, generator) * exponential(rows, width, generator).sqrt()


def mixture(rows, width, generator):
    """Draw samples whose dimensions are scaled together, by the root of an exponential variable."""
    return gaussian(rows, width, generator) * exponential(rows, 1, generator).sqrt()


def mild_mixture(rows, width, generator):
    """Draw samples whose dimensions are scaled together, by 0.5 to 1.5."""
    scale = torch.rand(rows, 1, generator=generator, dtype=torch.float64) + 0.5
    return gaussian(rows, width, generator) * scale / (13 / 12) ** 0.5


def skewed(rows, width, generator):
    """Draw from χ² with one degree of freedom, centred and scaled: skewness 2.8, kurtosis 15."""
    return (gaussian(rows, width, generator) ** 2 - 1) / 2**0.5


def recent_of(values, memory=1e9):
    recent = EwmaMoments(memory)
    recent.update(values)
    return recent


def alarms(draw, rows, width, *, level=LEVEL, tolerance=0.0, repetitions=300, source_count=10**9, change=None):
    """Return the rates of alarms raised by the means, by the second moments and by either."""
    generator = torch.Generator().manual_seed(rows * 1000 + width)
    found = []
    for _ in range(repetitions):
        values = draw(rows, width, generator)
        test = shift_test(
            recent_of(values if change is None else change(values)),
            source_count=source_count,
            level=level,
            tolerance=tolerance,
        )
        assert test.shifted == (test.mean > 1 or test.spread > 1)
        found.append((test.mean > 1, test.spread > 1, test.shifted))
    return np.mean(found, axis=0)


def room(level, repetitions=300):
    return level + 3 * math.sqrt(level * (1 - level) / repetitions)


SIZES = [(32, 1), (32, 5), (32, 30), (128, 1), (128, 30), (500, 5), (2000, 1), (2000, 30)]
# One dimension with a heavy tail exceeds the level: see below.
ORDINARY = [
    (draw, *size)
    for draw in (gaussian, laplace, mild_mixture, skewed)
    for size in SIZES
    if size[1] > 1 or draw in (gaussian, mild_mixture)
]


@pytest.mark.parametrize(("draw", "rows", "width"), ORDINARY)
def test_the_false_alarm_rate_is_at_most_the_level(draw, rows, width):
    """The level bounds the rate of both tests together, and half of it that of the means, for realistic features."""
    repetitions = 300 if rows * width < 50000 else 120
    by_mean, _, either = alarms(draw, rows, width, repetitions=repetitions)
    assert either <= room(LEVEL, repetitions)
    assert by_mean <= room(LEVEL / 2, repetitions)


@pytest.mark.parametrize(("rows", "width", "repetitions"), [(32, 200, 200), (128, 200, 120)])
def test_the_false_alarm_rate_in_many_dimensions(rows, width, repetitions):
    for draw in (gaussian, laplace, skewed):
        assert alarms(draw, rows, width, repetitions=repetitions)[2] <= room(LEVEL, repetitions)


def test_the_excess_false_alarm_rate_of_heavy_tails():
    """Known limits of the test.

    For one long-tailed dimension, few samples underestimate the variance, and alarms are up to three times as frequent
    as the level. For two hundred dimensions that are scaled together and 32 samples, the norm of the means varies with
    the scales, which the χ² approximation ignores, and alarms are up to four times as frequent. At the level and
    tolerance of the gate, the rate is within the level for both.
    """
    assert LEVEL < alarms(laplace, 128, 1)[2] < 2.5 * LEVEL
    assert LEVEL < alarms(skewed, 32, 1)[2] < 4 * LEVEL
    assert LEVEL < alarms(mixture, 32, 200)[2] < 4.5 * LEVEL
    for draw, width in ((skewed, 1), (mixture, 200), (mixture, 5)):
        for rows in (32, 128):
            assert alarms(draw, rows, width, level=1e-3, tolerance=0.1, repetitions=200)[2] <= 0.01


def test_the_test_accounts_for_a_small_source():
    """A test that ignores the noise of the source moments, here of 100 samples, would find a shift."""
    generator = torch.Generator().manual_seed(0)

    def against_a_small_source(values):
        return values - torch.randn(1, 8, generator=generator, dtype=torch.float64) / 10

    naive = alarms(gaussian, 400, 8, repetitions=200, change=against_a_small_source)
    known = alarms(gaussian, 400, 8, repetitions=200, change=against_a_small_source, source_count=100)
    assert naive[0] > 0.5
    assert known[0] <= room(LEVEL / 2, 200)


@pytest.mark.parametrize(
    ("rows", "width", "shift", "scale", "least"),
    [
        (32, 5, 1.0, 1.0, 0.99),  # one standard deviation in every dimension, one batch
        (32, 30, 0.7, 1.0, 0.99),
        (128, 5, 0.5, 1.0, 0.99),
        (256, 30, 0.3, 1.0, 0.95),
        (128, 30, 0.0, 1.6, 0.95),  # the spread alone
        (512, 5, 0.0, 1.5, 0.95),
        (256, 30, 0.0, 0.5, 0.95),  # a collapse
    ],
)
def test_shifts_are_detected_at_the_level_of_the_gate(rows, width, shift, scale, least):
    seen = alarms(gaussian, rows, width, level=1e-3, tolerance=0.1, repetitions=100, change=lambda y: y * scale + shift)
    assert seen[2] >= least
    assert (seen[0] if shift else seen[1]) >= least


def test_one_shifted_direction_among_many_is_detected():
    def one(values):
        values[:, 3] += 3.0
        return values

    assert alarms(gaussian, 128, 30, level=1e-3, tolerance=0.1, repetitions=60, change=one)[0] == 1


@pytest.mark.parametrize("tolerance", [0.1, 0.3])
def test_a_shift_within_the_tolerance_is_never_significant(tolerance):
    """A shift well below the tolerance is never significant, one well above always is."""
    rows, width = 4000, 10

    def moved(by):
        return alarms(
            gaussian, rows, width, level=1e-3, tolerance=tolerance, repetitions=40, change=lambda y: y + by * tolerance
        )

    assert moved(0.8)[2] == 0
    assert moved(1.0)[0] <= 0.05
    assert moved(1.6)[0] == 1
    # The variances may be off by twice the tolerance.
    for by, seen in ((0.7, 0), (1.6, 1)):
        scale = (1 + 2 * tolerance * by) ** 0.5
        found = alarms(
            gaussian, rows, width, level=1e-3, tolerance=tolerance, repetitions=40, change=lambda y, s=scale: y * s
        )
        assert found[1] == seen


def test_one_dimension_against_scipy():
    """With one dimension and no tolerance the critical value is that of χ²₁ divided by the count."""
    values = gaussian(200, 1, torch.Generator().manual_seed(3)) + 0.1
    test = shift_test(recent_of(values), source_count=1000, level=0.02, tolerance=0.0)
    count = 1 / (1 / 200 + 1 / 1000)
    statistic = float(values.mean()) ** 2 * count
    assert test.mean == pytest.approx(statistic / stats.chi2.isf(0.01, 1), rel=0.03)


# --- reweighting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
def test_min_reweighting_divergence_is_unbiased(shift):
    generator = torch.Generator().manual_seed(1)
    width, rows, repetitions = 6, 40, 600
    found = []
    for _ in range(repetitions):
        recent = recent_of(gaussian(rows, width, generator) + shift)
        unclipped = float((recent.mean**2).sum() - recent.variance.sum() / recent.count)
        assert min_reweighting_divergence(recent) == max(0.0, unclipped)
        found.append(unclipped)
    error = np.std(found) / repetitions**0.5
    # The variance is that of a finite sample, (n−1)/n of the true one.
    assert np.mean(found) == pytest.approx(width * shift**2 + width / rows**2, abs=3 * error)


def test_the_divergence_of_the_top_tenth_is_at_most_nine():
    """The top tenth of the source is a reweighting of χ² divergence 9, the default limit of the label-shift guard."""
    generator = torch.Generator().manual_seed(0)
    y = gaussian(20000, 8, generator)
    top = y[y[:, 0].argsort(descending=True)[:2000]]
    assert 2 < min_reweighting_divergence(recent_of(top)) < 9


# --- stationarity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [gaussian, laplace, skewed], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("rows", "outputs"), [(128, 1), (256, 3), (1024, 10)])
def test_a_shuffled_stream_is_stationary(draw, rows, outputs):
    generator = torch.Generator().manual_seed(rows)
    found = np.mean([stationarity_statistic(draw(rows, outputs, generator), 32, LEVEL) > 1 for _ in range(600)])
    assert found <= room(LEVEL, 600)


def test_the_false_alarm_rate_equals_the_level_for_gaussian_outputs():
    generator = torch.Generator().manual_seed(0)
    found = np.mean([stationarity_statistic(gaussian(256, 1, generator), 32, 0.1) > 1 for _ in range(1000)])
    assert 0.1 - 3 * 0.0095 <= found <= 0.1 + 3 * 0.0095


def test_stationarity_statistic_is_the_f_test_of_scipy():
    values = gaussian(96, 1, torch.Generator().manual_seed(5))
    values[:32] += 0.6
    exact = stats.f_oneway(*values[:, 0].reshape(3, 32).numpy()).statistic
    assert stationarity_statistic(values, 32, 0.01) == pytest.approx(exact / stats.f.isf(0.01, 2, 93), rel=0.03)
    # A tolerance of 0.5 allows a variance between blocks of half the variance within.
    assert stationarity_statistic(values, 32, 0.01, 0.5) == pytest.approx(
        exact / (stats.f.isf(0.01, 2, 93) + 16), rel=0.03
    )
    # Identical columns count as one.
    assert stationarity_statistic(values.repeat(1, 3), 32, 0.01) == pytest.approx(
        stationarity_statistic(values, 32, 0.01)
    )


@pytest.mark.parametrize("shape", ["sorted", "bursts", "drift"])
def test_a_sorted_stream_is_nonstationary(shape):
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        values = gaussian(256, 1, generator)
        if shape == "sorted":
            values = values.sort(dim=0).values
        elif shape == "bursts":
            values += gaussian(8, 1, generator).repeat_interleave(32, dim=0)
        else:
            values += torch.linspace(-1, 1, 256)[:, None]
        assert stationarity_statistic(values, 32, 1e-3) > 1


def test_leading_rows_that_fill_no_block_are_ignored():
    values = gaussian(128, 1, torch.Generator().manual_seed(2))
    older = torch.full((31, 1), 100.0, dtype=torch.float64)
    assert stationarity_statistic(torch.cat([older, values]), 32, 0.01) == stationarity_statistic(values, 32, 0.01)


def test_constant_outputs_are_stationary():
    assert stationarity_statistic(torch.full((128, 2), 0.5), 32, 1e-3) == 0


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**31), st.integers(1, 12), st.floats(0, 1), st.floats(0, 0.6), st.sampled_from([1e-4, 1e-2, 0.2])
)
def test_is_nonstationary_is_a_statistic_above_one(seed, columns, together, moving, level):
    """The shortcut agrees with the statistic for any correlation of the columns and any size of the movement."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(256, 1, generator=generator)
    values = (1 - together) * torch.randn(256, columns, generator=generator) + together * common
    values += moving * torch.randn(8, 1, generator=generator).repeat_interleave(32, dim=0)
    for tolerance in (0.0, 0.03):
        assert is_nonstationary(values, 32, level, tolerance) == (
            stationarity_statistic(values, 32, level, tolerance) > 1
        )


def test_is_nonstationary_with_and_without_the_correlation_of_columns():
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(256, 1, generator=generator).repeat(1, 8)
    still = torch.randn(256, 8, generator=generator)
    steps = torch.arange(8.0).repeat_interleave(32)[:, None]
    assert not is_nonstationary(still, 32, 1e-4)
    assert is_nonstationary(still + steps, 32, 1e-4)
    # Eight identical columns: the movement is significant for eight independent columns, not for one.
    moved = common + 0.1 * steps
    ratio = stationarity_statistic(moved, 32, 1e-2)
    assert ratio < 1 < stationarity_statistic(still + 0.1 * steps, 32, 1e-2)
    assert not is_nonstationary(moved, 32, 1e-2)


@pytest.mark.parametrize("size", [1e100, 1e160, 1e300])
def test_overflowing_squares_are_not_significant(size):
    values = torch.randn(128, 3, generator=torch.Generator().manual_seed(0)).double() * size
    assert not stationarity_statistic(values, 32, 1e-3) > 1
    assert not is_nonstationary(values, 32, 1e-3)
