import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import small_models
from regtta.statistics.moments import Moments
from regtta.statistics.source import SourceStatistics
from regtta.statistics.whitening import Whitening


def features(rows=600, width=6, seed=0):
    """Return correlated, skewed features with very different variances, in float64."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    mix = torch.randn(width, width, generator=generator, dtype=torch.float64) * torch.logspace(0, -1.5, width)
    return (raw + 0.3 * raw**2) @ mix.T.double() + 3.0


def head_of(weight):
    weight = torch.as_tensor(weight, dtype=torch.float64)
    head = nn.Linear(weight.shape[1], len(weight)).double()
    with torch.no_grad():
        head.weight.copy_(weight)
    return head


def whitened(z, head, fraction=0.99):
    source = SourceStatistics.from_moments(Moments.from_features(z), head="", fingerprint="")
    whitening = Whitening.from_statistics(source, head, fraction)
    return whitening, small_models.numpy64(whitening(z))


@pytest.mark.parametrize("fraction", [0.5, 0.99, 1.0])
def test_the_source_has_mean_zero_and_unit_covariance(fraction):
    z = features()
    whitening, y = whitened(z, head_of(torch.ones(1, 6)), fraction)
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(y.T).reshape(whitening.dimensions, -1), np.eye(whitening.dimensions), atol=1e-9)


def test_dimensions_carry_the_fraction_of_the_variance():
    z = features()
    values = np.linalg.eigvalsh(np.cov(z.numpy().T))[::-1]
    for fraction in (0.3, 0.9, 0.99):
        expected = int(np.searchsorted(np.cumsum(values) / values.sum(), fraction)) + 1
        assert whitened(z, head_of(torch.ones(1, 6)), fraction)[0].dimensions == expected


HEADS = {
    "one": ([[1.0, -2, 0, 0.5, 0, 1]], 1),
    "three": (np.random.default_rng(0).normal(size=(3, 6)), 3),
    "equal rows": ([[1.0, 0, 0, 2, 0, 0], [1.0, 0, 0, 2, 0, 0]], 1),
    "a zero row": ([[0.0] * 6, [1.0, 0, 3, 0, 0, 1]], 1),
    "nothing": ([[0.0] * 6], 0),
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("fraction", [0.99, 1.0])
def test_coordinates_orthogonal_to_the_outputs_are_uncorrelated_with_them(kind, fraction):
    weight, rank = HEADS[kind]
    z, head = features(), head_of(weight)
    whitening, y = whitened(z, head, fraction)
    directions = small_models.numpy64(whitening.outputs)
    assert directions.shape == (whitening.dimensions, rank)
    np.testing.assert_allclose(directions.T @ directions, np.eye(rank), atol=1e-12)
    outputs = small_models.numpy64(head(z))
    rest = y - y @ directions @ directions.T
    centred = outputs - outputs.mean(0)
    scale = max(outputs.std(), 1.0)
    np.testing.assert_allclose(rest.T @ centred / len(z) / scale, 0, atol=1e-9)
    if fraction == 1.0 and rank:  # and the outputs are a function of those directions alone
        inside = np.column_stack([y @ directions, np.ones(len(z))])
        left = np.linalg.lstsq(inside, outputs, rcond=None)[1]
        np.testing.assert_allclose(left, 0, atol=1e-12 * len(z) * scale**2)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31), st.floats(0.1, 6), st.integers(1, 4))
def test_no_reweighting_moves_the_mean_further_than_its_divergence(seed, sharpness, columns):
    """Bessel's inequality, exact on a finite source up to the n/(n−1) of an unbiased covariance."""
    z = features(rows=80, width=columns + 1, seed=seed % 7)
    _, y = whitened(z, head_of(torch.ones(1, columns + 1)), 1.0)
    n = len(y)
    weights = np.exp(sharpness * np.random.default_rng(seed).normal(size=n))
    weights *= n / weights.sum()
    divergence = ((weights - 1) ** 2).mean()
    moved = ((weights[:, None] * y).mean(0) ** 2).sum()
    assert moved <= divergence * (n - 1) / n * (1 + 1e-9)


def test_the_bound_is_tight_for_a_reweighting_along_a_coordinate():
    _, y = whitened(features(rows=400), head_of(torch.ones(1, 6)), 1.0)
    n = len(y)
    slope = 0.5 / np.abs(y[:, 0]).max()
    weights = 1 + slope * y[:, 0]
    divergence = ((weights - 1) ** 2).mean()
    assert ((weights[:, None] * y).mean(0) ** 2).sum() == pytest.approx(divergence * (n - 1) / n, rel=1e-9)


def test_low_precision_heads_are_whitened_in_float32_without_a_graph():
    z = features().float().requires_grad_()
    source = SourceStatistics.from_moments(Moments.from_features(z.detach()), head="", fingerprint="")
    y = Whitening.from_statistics(source, head_of(torch.ones(1, 6)).bfloat16())(z.bfloat16())
    assert y.dtype == torch.float32
    assert not y.requires_grad


def test_constant_features_raise_a_clear_error():
    from regtta.errors import RegttaError

    with pytest.raises(RegttaError):
        whitened(torch.ones(50, 6, dtype=torch.float64), head_of(torch.ones(1, 6)))
