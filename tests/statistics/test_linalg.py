"""Decompositions compared with numpy, the gradients of torch, and finite differences."""

import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from regtta.errors import StatisticsError
from regtta.statistics.linalg import stable_eigh, stable_svd, truncated_inverse


def random_matrix(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


# --- singular vectors --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (1, 3)])
def test_values_and_gradients_equal_those_of_torch_for_distinct_singular_values(shape):
    x, k = random_matrix(*shape).requires_grad_(), min(shape)
    weights = random_matrix(shape[0], k, seed=1), random_matrix(k, seed=2), random_matrix(shape[1], k, seed=3)

    def loss(u, s, v):  # of magnitudes: the signs of singular vectors are arbitrary
        return sum((w * part.abs()).sum() for w, part in zip(weights, (u, s, v), strict=True))

    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    ours = stable_svd(x)
    for found, expected in zip(ours, (u, s, vt.T), strict=True):
        torch.testing.assert_close(found, expected)
    (expected,) = torch.autograd.grad(loss(u, s, vt.T), x)
    (gradient,) = torch.autograd.grad(loss(*ours), x)
    torch.testing.assert_close(gradient, expected)


def with_values(values, shape):
    left, right = (torch.linalg.qr(random_matrix(side, len(values), seed=side)).Q for side in shape)
    return left @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right.T


@pytest.mark.parametrize(
    ("values", "count"),
    [([3.0, 3.0, 1.0], 2), ([3.0, 1.0, 1.0], 1), ([3.0, 2.0, 0.0, 0.0], 2), ([2.0, 2.0, 2.0, 0.0], 3)],
)
def test_gradients_of_the_leading_subspace_match_finite_differences_for_repeated_singular_values(values, count):
    """A function of the projector does not depend on the choice of singular vectors."""
    weight = random_matrix(6, 6, seed=4)

    def loss(x):
        leading = stable_svd(x)[0][:, :count]
        return (weight * (leading @ leading.T)).sum()

    x = with_values(values, (6, 5)).requires_grad_()
    assert torch.autograd.gradcheck(loss, x)


@pytest.mark.parametrize("matrix", [torch.eye(4), torch.zeros(3, 2), torch.ones(2, 5)], ids=str)
def test_gradients_are_finite_for_any_matrix(matrix):
    x = matrix.double().requires_grad_()
    u, s, v = stable_svd(x)
    (gradient,) = torch.autograd.grad(u.abs().sum() + s.sum() + v.abs().sum(), x)
    assert gradient.isfinite().all()


# --- inverses of Gram matrices -----------------------------------------------------------------------


def inverse_of(features, count):
    vectors, singular, _ = stable_svd(features.T)
    return truncated_inverse(features, vectors, singular.square() / len(features), count)


@pytest.mark.parametrize("shape", [(9, 4), (3, 6)])
def test_the_truncated_inverse_is_that_of_numpy(shape):
    z = random_matrix(*shape)
    gram = (z.T @ z / len(z)).numpy()
    rank = min(shape)
    np.testing.assert_allclose(inverse_of(z, rank), np.linalg.pinv(gram, rcond=1e-10), rtol=1e-7, atol=1e-12)
    values, vectors = np.linalg.eigh(gram)
    leading = np.outer(vectors[:, -1], vectors[:, -1]) / values[-1]
    np.testing.assert_allclose(inverse_of(z, 1), leading, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "count"),
    [([3.0, 2.0, 1.0, 0.5], 2), ([3.0, 3.0, 1.0, 0.5], 2), ([3.0, 3.0, 2.0, 2.0], 4), ([2.0, 2.0, 2.0, 0.0], 3)],
)
@pytest.mark.parametrize("shape", [(8, 4), (4, 7)])
def test_gradients_of_the_truncated_inverse_match_finite_differences(values, count, shape):
    weight = random_matrix(shape[1], shape[1], seed=5)
    z = with_values(values, shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: (weight * inverse_of(z, count)).sum(), z)


def test_gradients_are_finite_where_the_truncation_divides_equal_eigenvalues():
    z = with_values([2.0, 2.0, 2.0], (5, 3)).requires_grad_()
    (gradient,) = torch.autograd.grad(inverse_of(z, 2).sum(), z)
    assert gradient.isfinite().all()


# --- eigenvalues -------------------------------------------------------------------------------------


def failing(monkeypatch, name, times):
    """Make ``torch.linalg.<name>`` fail the first ``times`` times, as a solver that does not converge."""
    own, calls = getattr(torch.linalg, name), []

    def call(*args, **kwargs):
        calls.append(args[0].dtype)
        if len(calls) <= times:
            raise torch.linalg.LinAlgError("linalg: the algorithm failed to converge")
        return own(*args, **kwargs)

    monkeypatch.setattr(torch.linalg, name, call)
    return calls


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_eigendecomposition_equals_that_of_numpy_after_solver_failures(failures, monkeypatch):
    root = random_matrix(6, 9)
    matrix = root @ root.T
    calls = failing(monkeypatch, "eigh", failures)
    values, vectors = stable_eigh(matrix.float() if failures else matrix)
    expected, their_vectors = np.linalg.eigh(matrix.numpy())
    np.testing.assert_allclose(values.double().numpy(), expected, rtol=1e-5 if failures else 1e-10)
    np.testing.assert_allclose(np.abs(their_vectors.T @ vectors.double().numpy()), np.eye(6), atol=1e-4)
    assert calls == [torch.float64] if not failures else [torch.float32, torch.float64]


def test_a_matrix_without_decomposition_raises_a_clear_error(monkeypatch):
    failing(monkeypatch, "eigh", 9)
    failing(monkeypatch, "svd", 9)
    with pytest.raises(StatisticsError, match=r"3 × 3, have no eigenvalue decomposition \(linalg.*all finite.*collect"):
        stable_eigh(torch.eye(3))
    with pytest.raises(StatisticsError, match="entries are not all finite"):
        stable_eigh(torch.full((3, 3), torch.nan))


def test_collect_and_rsd_survive_a_failure_of_the_solver(monkeypatch):
    model, batches = small_models.mlp(), small_models.table(300).split(50)
    expected = regtta.collect(model, batches)
    bases = expected.uncentred_spectrum
    failing(monkeypatch, "eigh", 1)
    found = regtta.collect(model, batches)
    torch.testing.assert_close(found.variances, expected.variances)
    failing(monkeypatch, "eigh", 1)
    torch.testing.assert_close(found.uncentred_spectrum[0], bases[0])
    assert (
        regtta.Adapter(model, regtta.RSD(k=3), found)
        .adapt(small_models.table(12, shift=1.0))
        .diagnostics.verdict.learned
    )
