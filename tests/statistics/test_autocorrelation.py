"""Autocorrelation times against closed forms of autoregressive series, and the false alarms they prevent."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regtta.errors import StateError
from regtta.statistics import EwmaAutocorrelation, EwmaMoments, min_reweighting_divergence, shift_test
from regtta.statistics.autocorrelation import LAGS, MAX_TIME, integrated_time


def autoregressive(coefficient, count, width, seed=0):
    """Return a stationary first-order autoregressive series (count, width) of variance 1."""
    noise = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rows = [noise[0]]
    for row in noise[1:]:
        rows.append(coefficient * rows[-1] + (1 - coefficient**2) ** 0.5 * row)
    return torch.stack(rows)


@pytest.mark.parametrize("coefficient", [0.3, 0.6, 0.9, 0.95])
def test_time_of_an_autoregressive_series(coefficient):
    recent = EwmaAutocorrelation(8, memory=1e6)
    recent.update(autoregressive(coefficient, 20_000, 8))
    expected = (1 + coefficient) / (1 - coefficient)
    assert float(recent.time().mean()) == pytest.approx(expected, rel=0.1)


def test_interpolation_between_the_lags_is_exact_for_an_autoregressive_series():
    coefficients = torch.tensor([0.5, 0.8, 0.97], dtype=torch.float64)
    found = torch.stack([coefficients**lag for lag in LAGS])
    times = integrated_time(found, torch.full((len(LAGS),), 1e12))
    torch.testing.assert_close(times, (1 + coefficients) / (1 - coefficients), rtol=1e-3, atol=0)


def test_independent_samples_have_a_time_of_one_and_a_constant_drift_the_largest():
    recent = EwmaAutocorrelation(40)
    recent.update(torch.randn(4000, 40, generator=torch.Generator().manual_seed(1)))
    assert float(recent.time().max()) < 1.5
    assert float((recent.time() == 1).double().mean()) >= 0.95
    ramp = EwmaAutocorrelation(1, memory=1e6)
    ramp.update(torch.linspace(-1, 1, 5000)[:, None])
    assert float(ramp.time()) == MAX_TIME


def test_autocorrelations_equal_those_of_numpy_across_batches_of_any_size():
    rows = autoregressive(0.7, 600, 2)
    recent = EwmaAutocorrelation(2, memory=1e12)
    for part in rows.split([1, 5, 64, 130, 400]):
        recent.update(part)
    mean, variance = rows.mean(0), rows.var(0, correction=0)
    for number, lag in enumerate(LAGS):
        expected = ((rows[lag:] * rows[:-lag]).mean(0) - mean**2) / variance
        torch.testing.assert_close(recent.autocorrelations()[number], expected, rtol=1e-9, atol=1e-9)


def test_samples_that_are_not_finite_are_ignored():
    rows = autoregressive(0.7, 100, 2)
    recent, other = EwmaAutocorrelation(2), EwmaAutocorrelation(2)
    recent.update(rows)
    other.update(
        torch.cat(
            [
                rows[:40],
                torch.full((3, 2), torch.nan).double(),
                torch.full((1, 2), 1e200, dtype=torch.float64),
                rows[40:],
            ]
        )
    )
    other.update(rows[:0])
    assert torch.equal(recent.autocorrelations(), other.autocorrelations())


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_a_restored_state_continues_alike(sizes, seed):
    rows = autoregressive(0.8, sum(sizes) + 30, 3, seed)
    recent = EwmaAutocorrelation(3, memory=100)
    for part in rows[30:].split(sizes):
        recent.update(part)
    restored = EwmaAutocorrelation(3, memory=100)
    state = recent.state_dict()
    restored.validate_state(state, "state")
    restored.load_state_dict(state)
    for each in (recent, restored):
        each.update(rows[:30])
    assert torch.equal(recent.time(), restored.time())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", 65),
        ("tail", torch.zeros(3, 2)),
        ("sums", torch.zeros(9, 3).double()),
        ("weights", -torch.ones(8).double()),
        ("squared_weight", -1.0),
    ],
)
def test_invalid_states(key, value):
    recent = EwmaAutocorrelation(2)
    with pytest.raises(StateError, match=f"state/{key}"):
        recent.validate_state(recent.state_dict() | {key: value}, "state")


def alarms(coefficient, *, corrected):
    """Return the number of alarms of the gate's test at the end of 40 unshifted streams of 10 directions."""
    found = 0
    for rows in autoregressive(coefficient, 1280, 400).split(10, dim=1):
        recent, correlation = EwmaMoments(128), EwmaAutocorrelation(10)
        for batch in rows.split(64):
            recent.update(batch)
            correlation.update(batch)
        inflation = correlation.time() if corrected else None
        found += shift_test(recent, source_count=10_000, level=1e-3, tolerance=0.1, inflation=inflation).shifted
    return found


def test_false_alarms_of_the_shift_test_with_and_without_the_correction():
    assert alarms(0.0, corrected=False) == alarms(0.0, corrected=True) == 0
    assert alarms(0.9, corrected=False) >= 35
    assert alarms(0.9, corrected=True) <= 1


def test_a_shift_of_an_autocorrelated_stream_is_still_found():
    recent, correlation = EwmaMoments(128), EwmaAutocorrelation(10)
    rows = autoregressive(0.9, 1280, 10) + 2.0
    for batch in rows.split(64):
        recent.update(batch)
        correlation.update(batch)
    test = shift_test(recent, source_count=10_000, level=1e-3, tolerance=0.1, inflation=correlation.time())
    assert test.shifted


def test_steps_of_a_sequence_count_as_fewer_samples():
    """Features (B, T, D) of a sequence model are flattened step by step, so that correlated steps follow each other."""
    sequences = autoregressive(0.95, 32, 64 * 4).reshape(32, 64, 4).transpose(0, 1)
    recent = EwmaAutocorrelation(4)
    recent.update(sequences.flatten(0, 1))
    shuffled = EwmaAutocorrelation(4)
    shuffled.update(sequences.flatten(0, 1)[torch.randperm(64 * 32, generator=torch.Generator().manual_seed(0))])
    assert float(recent.time().min()) > 5
    assert float(shuffled.time().max()) < 1.5


def test_the_correction_of_the_reweighting_divergence():
    """Equal values have no variance; else the noise of the mean is multiplied by the autocorrelation time."""
    recent = EwmaMoments(1e9)
    recent.update(torch.tensor([[4.0], [2.0]]))
    assert min_reweighting_divergence(recent) == pytest.approx(9 - 1 / 2)
    assert min_reweighting_divergence(recent, torch.tensor([3.0])) == pytest.approx(9 - 3 / 2)


def test_a_uniform_inflation_equals_fewer_samples():
    """With τ for all directions and no tolerance, the critical value of the mean is τ times as large."""
    recent = EwmaMoments(1e9)
    recent.update(torch.randn(400, 6, generator=torch.Generator().manual_seed(0)) + 0.3)
    options = {"source_count": 1000, "level": 1e-3, "tolerance": 0.0}
    plain, halved = shift_test(recent, **options), shift_test(recent, **options, inflation=torch.full((6,), 4.0))
    assert halved.mean == pytest.approx(plain.mean / 4)
    assert halved.spread < plain.spread
