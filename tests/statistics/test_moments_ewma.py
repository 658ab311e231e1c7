import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import small_models
from regtta.statistics.moments import EwmaCovariance, EwmaMoments


def filled(batches, memory):
    recent = EwmaMoments(memory)
    for batch in batches:
        recent.update(batch)
    return recent


def by_hand(batches, memory):
    """Compute the weight of every sample, 1 for the newest batch, and the weighted moments with numpy."""
    sizes = [len(batch) for batch in batches]
    ages = [sum(sizes[i + 1 :]) for i in range(len(sizes))]
    weights = np.concatenate([np.full(size, math.exp(-age / memory)) for size, age in zip(sizes, ages, strict=True)])
    values = small_models.numpy64(torch.cat(list(batches)))
    share = weights / weights.sum()
    mean, square = share @ values, share @ values**2
    gaps = values**2 - square
    return {
        "count": weights.sum() ** 2 / (weights**2).sum(),
        "mean": mean,
        "square": square,
        "variance": square - mean**2,
        "covariance_of_squares": (gaps * share[:, None]).T @ gaps,
    }


def assert_agree(recent, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(recent, name), value, rtol=1e-10, atol=1e-11, err_msg=name)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=12), st.floats(1, 500), st.integers(0, 2**31))
def test_moments_equal_weighted_sums_of_numpy(sizes, memory, seed):
    values = small_models.table(sum(sizes), shift=0.5, scale=2.0, inputs=3, seed=seed)
    batches = values.split(sizes)
    assert_agree(filled(batches, memory), by_hand(batches, memory))


def test_moments_of_one_batch_do_not_depend_on_the_memory():
    values = small_models.table(1000, inputs=4)
    recent = filled([values], memory=10)
    np.testing.assert_allclose(recent.mean, small_models.numpy64(values).mean(0), rtol=1e-12)
    np.testing.assert_allclose(recent.variance, small_models.numpy64(values).var(0), rtol=1e-12)
    assert recent.count == 1000


@pytest.mark.parametrize(("size", "memory"), [(1, 50), (5, 100), (32, 128), (128, 128)])
def test_the_count_converges_to_its_closed_form(size, memory):
    """``B / tanh(B / 2m)``: 2m for batches far smaller than the memory, B for those far larger."""
    recent = filled([torch.zeros(size, 1)] * (12 * memory // size + 12), memory)
    assert recent.count == pytest.approx(size / math.tanh(size / (2 * memory)), rel=1e-3)
    if size * 10 <= memory:
        assert recent.count == pytest.approx(2 * memory, rel=0.01)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 32), st.integers(2, 20), st.floats(64, 500), st.integers(0, 2**31))
def test_splitting_batches_in_two_changes_weights_by_the_age_of_half_a_batch(half, batches, memory, seed):
    """The weight of the older half of every batch is reduced by at most ``exp(−half/memory)``."""
    values = small_models.table(2 * half * batches, inputs=2, seed=seed)
    whole, split = filled(values.split(2 * half), memory), filled(values.split(half), memory)
    assert_agree(split, by_hand(values.split(half), memory))
    fading = math.exp(-half / memory)
    assert fading <= split._weight / whole._weight <= 1
    assert whole._weight * (1 + fading) / 2 == pytest.approx(split._weight)
    # Weights that differ by that factor move a mean by half of (1 − factor) of the spread at the most.
    spread = values.max(dim=0).values - values.min(dim=0).values
    assert ((whole.mean - split.mean).abs() <= (1 - fading) / 2 * spread + 1e-12).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_samples_are_ignored(bad):
    values = small_models.table(30, inputs=3)
    spoiled = torch.cat([values[:10], torch.full((1, 3), 1.0), values[10:]])
    spoiled[10, 1] = bad
    assert_agree(filled([spoiled], 50), by_hand([values], 50))
    untouched = filled([values], 50)
    untouched.update(torch.full((4, 3), bad))
    untouched.update(torch.empty(0, 3))
    assert_agree(untouched, by_hand([values], 50))


def test_empty_and_reset_moments():
    recent = EwmaMoments(10)
    assert recent.count == 0
    with pytest.raises(ValueError, match="Nothing has been added"):
        _ = recent.mean
    first, second = small_models.table(20), small_models.table(20, seed=5)
    recent.update(first)
    recent.reset()
    assert recent.count == 0
    recent.update(second)
    assert_agree(recent, by_hand([second], 10))


def test_a_restored_state_continues_and_is_a_copy():
    batches = small_models.table(60, inputs=3).split(7)
    first, second = filled(batches[:4], 20), EwmaMoments(20)
    state = first.state_dict()
    second.load_state_dict(state)
    for batch in batches[4:]:
        first.update(batch)
        second.update(batch)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.covariance_of_squares, second.covariance_of_squares)
    assert first.count == second.count
    third = EwmaMoments(20)
    third.load_state_dict(state)  # a copy, which the first two have not changed
    assert_agree(third, by_hand(batches[:4], 20))
    third.load_state_dict(EwmaMoments(20).state_dict())
    assert third.count == 0
    assert not first.mean.requires_grad


def test_no_autograd_graph_is_kept():
    values = small_models.table(5).requires_grad_()
    recent = filled([values * 2], 10)
    assert not recent.mean.requires_grad
    assert recent.mean.dtype == torch.float64


def test_covariance_of_weighted_samples():
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randn(size, 3, generator=generator).double() for size in (5, 40, 20)]
    recent = EwmaCovariance(30)
    for batch in batches:
        recent.update(batch)
    sizes = [len(batch) for batch in batches]
    weights = np.concatenate([np.full(size, math.exp(-sum(sizes[i + 1 :]) / 30)) for i, size in enumerate(sizes)])
    values = small_models.numpy64(torch.cat(batches))
    np.testing.assert_allclose(recent.covariance, np.cov(values.T, aweights=weights, ddof=0), rtol=1e-9)
    restored = EwmaCovariance(30)
    restored.validate_state(recent.state_dict(), "state", 3)
    restored.load_state_dict(recent.state_dict())
    assert torch.equal(restored.covariance, recent.covariance)
