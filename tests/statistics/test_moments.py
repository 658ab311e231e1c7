import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regtta.errors import StatisticsError
from regtta.statistics.moments import BLOCK_ROWS, Moments, RunningMoments


def in_batches(data, sizes):
    moments = None
    for part in torch.from_numpy(data).split(sizes):
        seen = Moments.from_features(part)
        moments = seen if moments is None else moments.merge(seen)
    return moments


def running(data, sizes):
    moments = RunningMoments()
    for part in torch.from_numpy(data).split(sizes):
        moments.update(part)
    return moments.finish()


def test_against_numpy_in_batches_of_every_size():
    data = np.random.default_rng(0).normal(3, 2, (101, 6)) @ np.random.default_rng(1).normal(size=(6, 6))
    for size in (1, 7, 50, 101):
        moments = in_batches(data, size)
        assert moments.count == 101
        np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
        np.testing.assert_allclose(moments.covariance(), np.cov(data.T), rtol=1e-10, atol=1e-12)


def test_a_mean_far_larger_than_the_standard_deviation():
    data = np.random.default_rng(0).normal(0, 1, (10_000, 3)) + 1e6
    moments = in_batches(data, 64)
    np.testing.assert_allclose(moments.covariance(), np.cov(data.T), rtol=1e-8, atol=1e-9)
    # Features of about 1e6 in float32 are themselves rounded to 1/16.
    rounded = in_batches(data.astype(np.float32), 64)
    np.testing.assert_allclose(rounded.covariance().diagonal(), np.ones(3), rtol=0.05)


def test_a_constant_dimension_has_exactly_zero_variance():
    data = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    data[:, 1] = 0.1
    assert in_batches(data, 7).covariance()[1].abs().max() == 0


def test_float32_and_half_are_summed_in_float64():
    data = torch.rand(300, 2).bfloat16()
    moments = Moments.from_features(data)
    assert moments.mean.dtype == moments.scatter.dtype == torch.float64
    np.testing.assert_allclose(moments.mean, data.double().numpy().mean(0), rtol=1e-12)


floats = arrays.arrays(np.float64, st.tuples(st.integers(2, 12), st.just(3)), elements=st.floats(-1e3, 1e3, width=32))


@settings(deadline=None)
@given(a=floats, b=floats, c=floats)
def test_merging_is_associative_and_commutative(a, b, c):
    a, b, c = (Moments.from_features(torch.from_numpy(x)) for x in (a, b, c))
    orders = [a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)]
    for other in orders[1:]:
        assert other.count == orders[0].count
        torch.testing.assert_close(other.mean, orders[0].mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(other.scatter, orders[0].scatter, rtol=1e-9, atol=1e-6)


def test_merging_modifies_neither_operand():
    a, b = Moments.from_features(torch.randn(4, 2)), Moments.from_features(torch.randn(5, 2))
    kept = a.scatter.clone(), b.scatter.clone(), a.mean.clone()
    a.merge(b)
    assert torch.equal(a.scatter, kept[0])
    assert torch.equal(b.scatter, kept[1])
    assert torch.equal(a.mean, kept[2])


def test_two_samples_are_enough():
    assert Moments.from_features(torch.tensor([[0.0], [2.0]])).covariance().item() == 2


def test_one_sample_has_no_covariance():
    with pytest.raises(StatisticsError, match="at least 2 source samples for a covariance, found 1"):
        Moments.from_features(torch.randn(1, 2)).covariance()


@pytest.mark.parametrize("columns", [1, 6, 130])  # less than a strip, and strips of which the last is narrow
@pytest.mark.parametrize("rows", [2, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS + 5])
def test_running_moments_against_numpy_in_batches_of_every_size(rows, columns):
    random = np.random.default_rng(rows)
    data = random.normal(3, 2, (rows, columns)) @ random.normal(size=(columns, columns))
    expected = np.cov(data.T).reshape(columns, columns)
    for size in (1, 7, 1000, rows):
        moments = running(data, size)
        assert moments.count == rows
        np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-12, atol=1e-12 * expected.max())


def test_running_moments_far_from_zero_and_drifting():
    random = np.random.default_rng(0)
    still = random.normal(0, 1, (10_000, 3)) + 1e6
    np.testing.assert_allclose(running(still, 64).covariance(), np.cov(still.T), rtol=1e-12, atol=1e-12)
    drifting = random.normal(0, 1, (10_000, 3)) + np.linspace(1e6, 2e6, 10_000)[:, None]
    np.testing.assert_allclose(running(drifting, 64).covariance(), np.cov(drifting.T), rtol=1e-12)
    begins_far_off = random.normal(0, 1, (10_000, 3))
    begins_far_off[0] = 1e7
    np.testing.assert_allclose(running(begins_far_off, 64).covariance(), np.cov(begins_far_off.T), rtol=1e-12)


def test_a_constant_dimension_has_exactly_zero_variance_after_many_blocks():
    data = np.random.default_rng(0).normal(size=(3 * BLOCK_ROWS, 2)).astype(np.float32)
    data[:, 1] = 0.1
    moments = running(data, 100)
    assert moments.covariance()[1].abs().max() == 0
    assert moments.mean[1] == np.float32(0.1)


def test_batches_may_be_modified_after_update():
    batch, running_moments = torch.ones(4, 2), RunningMoments()
    for value in (0.0, 2.0):
        running_moments.update(batch.fill_(value))
    assert running_moments.finish().mean.tolist() == [1, 1]


def test_running_moments_of_half_precision_and_of_features_with_gradients():
    data = torch.rand(300, 2).bfloat16().requires_grad_()
    moments = RunningMoments()
    moments.update(data)
    found = moments.finish()
    assert found.mean.dtype == found.scatter.dtype == torch.float64
    assert not found.scatter.requires_grad
    np.testing.assert_allclose(found.mean, data.detach().double().numpy().mean(0), rtol=1e-12)


def test_finish_resets_the_running_moments():
    moments = RunningMoments()
    assert moments.finish() is None
    moments.update(torch.randn(5, 2))
    first = moments.finish()
    kept = first.scatter.clone()
    assert moments.finish() is None
    moments.update(torch.ones(3, 4))
    second = moments.finish()
    assert (second.count, second.mean.tolist()) == (3, [1, 1, 1, 1])
    assert torch.equal(first.scatter, kept)
