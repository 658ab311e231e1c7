import itertools
import math

import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import OptionError
from regtta.methods.losses import pair_means, pair_variances


def directions(k):
    """Return e_i and (e_i ± e_j)/√2 as rows, k² in all."""
    axes = np.eye(k)
    pairs = [
        (axes[i] + sign * axes[j]) / math.sqrt(2) for i, j in itertools.combinations(range(k), 2) for sign in (1, -1)
    ]
    return np.array([*axes, *pairs])


def loss_by_numpy(batch, whole, weight, k, *, weighting=True):
    """Return the loss of CWSA, computed direction by direction from its definition."""
    values, vectors = np.linalg.eigh(np.cov(whole, rowvar=False))
    variances, basis = values[::-1][:k], vectors[:, ::-1][:, :k]
    coordinates = (batch - whole.mean(0)) @ basis
    terms = []
    for q in directions(k):
        along = coordinates @ q
        m, s, s0 = along.mean(), along.var(ddof=1), q @ np.diag(variances) @ q
        alpha = 1 + (np.linalg.norm(weight @ basis @ q) if weighting else 0)
        terms.append(
            alpha
            * (np.log(s0 / s) / 2 + (s + m**2) / (2 * s0) - 0.5 + np.log(s / s0) / 2 + (s0 + m**2) / (2 * s) - 0.5)
        )
    return np.mean(terms)


def test_worked_example():
    # The source has variances 8 and 2 along the axes and mean 0; the batch (2, 0), (0, 2), (2, 2) has mean (4/3, 4/3),
    # variances 4/3 and covariance −2/3.
    source = source_of([[4.0, 0, 0, 0], [-4.0, 0, 0, 0], [0, 2.0, 0, 0], [0, -2.0, 0, 0], [0, 0, 0, 0]])
    assert source.variances[:2].tolist() == pytest.approx([8.0, 2.0])
    features = torch.zeros(3, 4, dtype=torch.float64)
    features[:, :2] = torch.tensor([[2.0, 0], [0, 2.0], [2.0, 2.0]])

    def divergence(m, s, s0):
        return ((m * m + s) / s0 + (m * m + s0) / s - 2) / 2

    along = [
        (4 / 3, 4 / 3, 8.0),  # e_1
        (4 / 3, 4 / 3, 2.0),  # e_2
        (8 / 3 / math.sqrt(2), (4 / 3 + 4 / 3 - 4 / 3) / 2, 5.0),  # (e_1 + e_2)/√2
        (0.0, (4 / 3 + 4 / 3 + 4 / 3) / 2, 5.0),  # (e_1 − e_2)/√2
    ]
    plain = regtta.CWSA(k=2, weighting=False).start(context_of(head_of([3.0, 0.0, 0.0, 0.0]), source))
    expected = [divergence(*numbers) for numbers in along]
    assert plain.update(batch_of(features)).item() == pytest.approx(sum(expected) / 4)
    # The output depends on e_1 alone, by 3: weights 4, 1, and 1 + 3/√2 for both diagonals.
    weighted = regtta.CWSA(k=2).start(context_of(head_of([3.0, 0.0, 0.0, 0.0]), source))
    alphas = [4, 1, 1 + 3 / math.sqrt(2), 1 + 3 / math.sqrt(2)]
    assert weighted.update(batch_of(features)).item() == pytest.approx(np.dot(alphas, expected) / 4)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("weighting", [True, False])
def test_loss_against_numpy(outputs, weighting):
    model = small_models.mlp(outputs).double()
    data, x = small_models.table(300).double(), small_models.table(40, shift=0.5, scale=1.3, seed=4).double()
    source = regtta.collect(model, data.split(50))
    method = regtta.CWSA(k=5, weighting=weighting, batch_norm="source")
    step = regtta.Adapter(model, method, source).adapt(x)
    with torch.no_grad():
        whole, batch = (model[:6](v).numpy() for v in (data, x))
    expected = loss_by_numpy(batch, whole, model[6].weight.detach().numpy(), 5, weighting=weighting)
    assert step.loss == pytest.approx(expected, rel=1e-9)


def test_moments_of_all_pairs_are_those_of_the_directions():
    rng = np.random.default_rng(0)
    mean, factor = rng.normal(size=5), rng.normal(size=(9, 5))
    covariance = np.cov(factor, rowvar=False)
    means = pair_means(torch.from_numpy(mean)).flatten().numpy()
    variances = pair_variances(torch.from_numpy(covariance)).flatten().numpy()
    expected = [(abs(q @ mean), q @ covariance @ q) for q in directions(5)]
    found = list(zip(np.abs(means), variances, strict=True))
    np.testing.assert_allclose(sorted(found), sorted(expected), rtol=1e-12)


def test_gradients_agree_with_finite_differences():
    source = source_of(np.random.default_rng(0).normal(size=(50, 4)) * [4, 3, 2, 1])
    rule = regtta.CWSA(k=3).start(context_of(head_of([1.0, -2.0, 0.5, 1.0]), source))
    features = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(z)), features)


def test_correlations_that_ssa_ignores_are_aligned():
    points = np.random.default_rng(1).normal(size=(400, 4))
    whitened = (points - points.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(points, rowvar=False))).T
    scales = np.array([4.0, 3.0, 2.0, 1.0])  # the directions of the source are the axes
    mixed = whitened.copy()
    mixed[:, 1] = whitened[:, :2] @ [0.9, math.sqrt(1 - 0.81)]  # variance 1, correlation 0.9 with the first axis
    context = context_of(head_of([0.0] * 4), source_of(whitened * scales))
    same, other = (batch_of(torch.from_numpy(values * scales)) for values in (whitened, mixed))
    ssa, cwsa = regtta.SSA(k=4).start(context), regtta.CWSA(k=4).start(context)
    assert ssa.update(other).item() == pytest.approx(0, abs=1e-9)
    assert cwsa.update(same).item() == pytest.approx(0, abs=1e-9)
    assert cwsa.update(other).item() > 0.1


def test_the_default_k_is_limited_by_the_rank_silently_and_a_given_one_with_a_warning(caplog):
    source = source_of(np.random.default_rng(0).normal(size=(50, 4)) * [1, 1, 1, 0])
    assert regtta.CWSA().subspace(source).basis.shape == (4, 3)
    assert caplog.messages == []
    assert regtta.CWSA(k=4).subspace(source).basis.shape == (4, 3)
    assert "k=4 is beyond the rank 3" in caplog.text


def test_perfectly_correlated_coordinates_have_a_finite_loss_and_gradient():
    source = source_of(np.random.default_rng(0).normal(size=(50, 4)))
    rule = regtta.CWSA(k=4).start(context_of(head_of([1.0] * 4), source))
    basis = source.basis
    features = (
        source.mean + torch.linspace(-1, 1, 8).double().unsqueeze(1) * (basis[:, 0] + basis[:, 1])
    ).requires_grad_()
    loss = rule.update(batch_of(features))
    (gradient,) = torch.autograd.grad(loss, features)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_invalid_options():
    with pytest.raises(OptionError, match="k to be a whole number"):
        regtta.CWSA(k=0)
    with pytest.raises(OptionError, match="weighting to be True or False"):
        regtta.CWSA(weighting=1)
