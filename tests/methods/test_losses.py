import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as scipy_stats

from regtta.methods.losses import METRICS, alignment_loss, l1, moments_with_memory, symmetric_kl, wasserstein2

means = st.floats(-50, 50)
variances = st.floats(1e-3, 1e3)


def double(*values):
    return tuple(torch.tensor(value, dtype=torch.float64) for value in values)


def kl_by_integration(m, s, m0, s0):
    p, q = scipy_stats.norm(m, s**0.5), scipy_stats.norm(m0, s0**0.5)
    return integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), m - 12 * s**0.5, m + 12 * s**0.5)[0]


@pytest.mark.parametrize(("m", "s", "m0", "s0"), [(0.3, 1.7, -0.4, 0.6), (2.0, 0.2, 1.0, 3.0)])
def test_symmetric_kl_against_numerical_integration(m, s, m0, s0):
    both_ways = kl_by_integration(m, s, m0, s0) + kl_by_integration(m0, s0, m, s)
    assert symmetric_kl(*double(m, s, m0, s0)).item() == pytest.approx(both_ways, rel=1e-7)


def test_wasserstein2_against_quantile_functions():
    m, s, m0, s0 = 0.3, 1.7, -0.4, 0.6
    p, q = scipy_stats.norm(m, s**0.5), scipy_stats.norm(m0, s0**0.5)
    transport = integrate.quad(lambda u: (p.ppf(u) - q.ppf(u)) ** 2, 0, 1)[0]
    assert wasserstein2(*double(m, s, m0, s0)).item() == pytest.approx(transport, rel=1e-6)


def test_l1_in_closed_form():
    assert l1(*double(2.0, 9.0, -1.0, 4.0)).item() == pytest.approx(3.0 + 1.0)


@pytest.mark.parametrize("name", METRICS)
@given(m=means, s=variances, m0=means, s0=variances)
def test_distances_are_symmetric_and_nonnegative(name, m, s, m0, s0):
    metric = METRICS[name]
    there, back = metric(*double(m, s, m0, s0)), metric(*double(m0, s0, m, s))
    assert there.item() == pytest.approx(back.item(), rel=1e-9, abs=1e-9)
    assert there.item() >= -1e-9
    assert metric(*double(m, s, m, s)).item() == pytest.approx(0, abs=1e-9)


@given(m=means, s=variances, m0=means, s0=variances, scale=st.floats(0.1, 10))
def test_kl_is_invariant_to_scale(m, s, m0, s0, scale):
    plain = symmetric_kl(*double(m, s, m0, s0)).item()
    scaled = symmetric_kl(*double(m * scale, s * scale**2, m0 * scale, s0 * scale**2)).item()
    assert scaled == pytest.approx(plain, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_gradients_agree_with_finite_differences(name):
    generator = torch.Generator().manual_seed(0)
    m, m0 = torch.randn(2, 6, dtype=torch.float64, generator=generator)
    s, s0 = torch.rand(2, 6, dtype=torch.float64, generator=generator) + 0.3
    arguments = [value.requires_grad_() for value in (m, s, m0, s0)]
    assert torch.autograd.gradcheck(METRICS[name], arguments)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("unbiased", [True, False])
def test_alignment_loss_against_numpy(name, unbiased):
    rng = np.random.default_rng(0)
    values, mean0, variance0 = rng.normal(1, 2, (7, 4)), rng.normal(size=4), rng.uniform(0.5, 2, 4)
    weights = rng.uniform(1, 3, 4)
    m, s = values.mean(0), values.var(0, ddof=1 if unbiased else 0)
    expected = {
        "kl": 0.5 * ((m - mean0) ** 2 + s) / variance0 + 0.5 * ((m - mean0) ** 2 + variance0) / s - 1,
        "w2": (m - mean0) ** 2 + (np.sqrt(s) - np.sqrt(variance0)) ** 2,
        "l1": np.abs(m - mean0) + np.abs(np.sqrt(s) - np.sqrt(variance0)),
    }[name]
    loss = alignment_loss(*map(torch.from_numpy, (values, mean0, variance0, weights)), metric=name, unbiased=unbiased)
    assert loss.item() == pytest.approx((weights * expected).sum(), rel=1e-12)


def test_the_variance_is_unbiased_by_default():
    values = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    zero, one = torch.zeros(1), torch.ones(1)
    assert alignment_loss(values - 1, zero, 2 * one, one).item() == 0
    assert alignment_loss(values - 1, zero, one, one, unbiased=False).item() == 0


@pytest.mark.parametrize("name", METRICS)
def test_alignment_loss_gradient_agrees_with_finite_differences(name):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    mean0, variance0, weights = torch.rand(3, 3, dtype=torch.float64, generator=generator) + 0.5
    assert torch.autograd.gradcheck(lambda v: alignment_loss(v, mean0, variance0, weights, metric=name), values)


# --- moments with a memory -------------------------------------------------------------------------


def normal(rows, seed):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize(("batch", "past"), [(1, 1), (1, 9), (4, 20), (20, 4)])
def test_moments_with_memory_are_those_of_all_samples(batch, past, unbiased):
    values, before = normal(batch, 0) + 1, normal(past, 1)
    mean, variance = moments_with_memory(values, before, unbiased=unbiased)
    together = torch.cat([before, values]).numpy()
    np.testing.assert_allclose(mean, together.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, together.var(0, ddof=int(unbiased)), rtol=1e-12)


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize(("batch", "past"), [(1, 9), (4, 20), (3, 0)])
def test_gradient_of_moments_with_memory_is_that_of_copies_of_the_batch(batch, past, unbiased):
    """Finite differences: were the window full of samples like these, moving one would move all of its copies.

    With a past, ``∂mean/∂v = 1/B`` and ``∂variance/∂v = c · 2(v − mean)/B`` with the mean of all, held where it is, and
    c = n/(n−1) for an unbiased variance; without one, the ordinary derivatives.
    """
    values, before = (normal(batch, 0) + 1).requires_grad_(), normal(past, 1)
    mean, variance = moments_with_memory(values, before, unbiased=unbiased)
    of_mean = torch.autograd.grad(mean.sum(), values, retain_graph=True)[0].numpy()
    of_variance = torch.autograd.grad(variance.sum(), values)[0].numpy()
    fixed, n = mean.detach().numpy(), batch + past
    scale = n / (n - 1) if unbiased else 1.0
    step = 1e-6
    for row, column in np.ndindex(batch, 3):
        up, down = values.detach().numpy().copy(), values.detach().numpy().copy()
        up[row, column] += step
        down[row, column] -= step
        if past:
            numeric = (
                [x.mean(0).sum() for x in (up, down)],
                [scale * ((x - fixed) ** 2).mean(0).sum() for x in (up, down)],
            )
        else:
            numeric = [x.mean(0).sum() for x in (up, down)], [x.var(0, ddof=int(unbiased)).sum() for x in (up, down)]
        found = of_mean[row, column], of_variance[row, column]
        for gradient, (high, low) in zip(found, numeric, strict=True):
            assert gradient == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-8)


def test_moments_without_memory_equal_the_plain_moments():
    values = normal(7, 0)
    mean, variance = moments_with_memory(values, values[:0])
    assert torch.equal(mean, values.mean(0))
    assert torch.equal(variance, values.var(0))


def test_memory_receives_no_gradient():
    values, before = normal(2, 0).requires_grad_(), normal(4, 1)
    mean, variance = moments_with_memory(values, before)
    (mean + variance).sum().backward()
    assert before.grad is None
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("unbiased", [True, False])
def test_closed_form_gradient_agrees_with_autograd(unbiased):
    torch.manual_seed(0)
    values = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    mean0, variance0, weights = torch.randn(4).double(), torch.rand(4).double() + 0.5, torch.rand(4).double() + 1
    loss = alignment_loss(values, mean0, variance0, weights, unbiased=unbiased)
    mean, variance = values.mean(dim=0), values.var(dim=0, correction=int(unbiased))
    expected = (weights * symmetric_kl(mean, variance, mean0, variance0)).sum()
    torch.testing.assert_close(loss, expected)
    found, wanted = (torch.autograd.grad(3 * scalar, values)[0] for scalar in (loss, expected))
    torch.testing.assert_close(found, wanted)
    assert torch.autograd.gradcheck(
        lambda x: alignment_loss(x, mean0, variance0, weights, unbiased=unbiased), values.detach().requires_grad_()
    )


def test_alignment_loss_is_differentiable_in_every_argument():
    values = torch.randn(9, 4, dtype=torch.float64)
    arguments = [(torch.rand(4).double() + 0.5).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *given: alignment_loss(values, *given), arguments)
