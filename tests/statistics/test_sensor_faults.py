"""Sensor faults are told from another population by the covariance of the columns."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regtta.statistics import fit_sensor_faults

COLUMNS = 8


def mixing(seed):
    return np.random.default_rng(seed).normal(size=(COLUMNS, COLUMNS)) * 0.5 + np.eye(COLUMNS)


def rows(count, seed, of=0):
    return np.random.default_rng(seed).normal(size=(count, COLUMNS)) @ mixing(of)


def fit(source, target):
    covariances = [torch.tensor(np.cov(values.T)) for values in (source, target)]
    return fit_sensor_faults(*covariances, source_count=len(source), target_count=len(target))


def faulty(values, seed=5):
    """Return ``values`` with two gains, an offset, a dead sensor and a noisy one."""
    changed = values.copy()
    changed[:, 0] = 1.4 * values[:, 0] + 3
    changed[:, 2] = 0.5 * values[:, 2]
    changed[:, 4] = -1.0
    changed[:, 6] += np.random.default_rng(seed).normal(size=len(values)) * values[:, 6].std()
    return changed


def test_gains_of_faulty_sensors_are_found():
    source, target = rows(20_000, 1), rows(20_000, 2)
    found = fit(source, faulty(target))
    np.testing.assert_allclose(found.gains, [1.4, 1, 0.5, 1, 0, 1, 1, 1], atol=0.06)
    assert found.columns == COLUMNS - 1
    assert found.explain(tolerance=0.0)


@pytest.mark.parametrize("count", [64, 256, 2048])
def test_false_alarms_are_rare_at_any_number_of_samples(count):
    source = rows(20_000, 1)
    refused = sum(not fit(source, faulty(rows(count, seed))).explain(tolerance=0.0) for seed in range(100, 200))
    assert refused <= 3


@pytest.mark.parametrize("count", [256, 2048])
def test_another_dependence_of_the_columns_is_not_explained(count):
    source = rows(20_000, 1)
    assert all(not fit(source, rows(count, seed, of=9)).explain(tolerance=0.03) for seed in range(10, 20))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(0.2, 5.0), min_size=COLUMNS, max_size=COLUMNS),
    st.lists(st.floats(0.0, 4.0), min_size=COLUMNS, max_size=COLUMNS),
)
def test_any_gains_and_noise_are_explained_exactly_by_exact_covariances(gains, noise):
    source = torch.tensor(mixing(3).T @ mixing(3))
    scales = torch.tensor(gains, dtype=torch.float64)
    added = torch.tensor(noise, dtype=torch.float64) * source.diagonal()
    target = source * torch.outer(scales, scales) + torch.diag(added)
    found = fit_sensor_faults(source, target, source_count=1e9, target_count=1e9)
    np.testing.assert_allclose(found.gains, gains, rtol=0.02)
    assert found.residual < 1e-2


def test_the_residual_is_that_of_least_squares():
    source, target = (np.cov(rows(5000, seed, of=seed).T) for seed in (1, 4))
    scale = np.sqrt(np.outer(np.diag(source), np.diag(source)))
    found = fit_sensor_faults(torch.tensor(source), torch.tensor(target), source_count=1e12, target_count=1e12)
    gains, now = found.gains.numpy(), target / scale
    sizes = np.sqrt(np.maximum(np.diag(now), 1))
    left = (now - np.outer(gains, gains) * source / scale) / np.outer(sizes, sizes)
    off = left[~np.eye(COLUMNS, dtype=bool)]
    assert found.residual == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-6)


def test_few_columns_explain_anything_and_constant_ones_do_not_count():
    source, target = torch.eye(5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
    source[0, 1] = source[1, 0] = 0.9
    target[0, 1] = target[1, 0] = -0.9
    source[4, 4] = target[3, 3] = 0.0
    found = fit_sensor_faults(source, target, source_count=1e6, target_count=1e6)
    assert found.columns == 3
    assert found.explain(tolerance=0.0)
    assert found.gains[3:].tolist() == [0.0, 0.0]


def test_a_region_that_narrows_several_columns_is_another_population():
    source, target = rows(20_000, 1), rows(2000, 2)
    narrow = target * np.array([1, 0.1, 1, 1, 1, 1, 1, 1])
    assert fit(source, narrow).shrunk == 1
    assert fit(source, narrow).explain(tolerance=0.0)  # one column may be of rare events
    narrow[:, 5] *= 0.1
    assert fit(source, narrow).shrunk == 2
    assert not fit(source, narrow).explain(tolerance=1.0)
