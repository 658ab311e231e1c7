import numpy as np
import pytest
import torch
from scipy.linalg import inv, sqrtm

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import OptionError, StateError


def map_by_scipy(source, target, prior):
    """Return A = Σ_s^½ Σ̂_t^(−½) for points (n, D)."""
    covariance, count = np.cov(source, rowvar=False), len(target)
    shrunken = (prior * covariance + count * np.cov(target, rowvar=False)) / (prior + count)
    return np.real(sqrtm(covariance) @ inv(sqrtm(shrunken)))


def test_worked_example():
    # One feature with source mean 0 and variance 4, target mean 3 and variance 1 from 3 samples, counted as 1 sample
    # of the source: (1·4 + 3·1)/4 = 7/4, A = √(4 / (7/4)) = √(16/7). With w = 2 and b = 0: w' = 2A, b' = −6A.
    source = source_of([[2.0, 0, 0, 0], [-2.0, 0, 0, 0], [0.0, 0, 0, 0]])
    assert source.variances[0].item() == pytest.approx(4)
    features = torch.tensor([[2.0, 0, 0, 0], [3.0, 0, 0, 0], [4.0, 0, 0, 0]], dtype=torch.float64)
    rule = regtta.Recolour(prior_samples=1).start(context_of(head_of([2.0, 5.0, 0.0, 0.0]), source))
    update = rule.update(batch_of(features))
    factor = (16 / 7) ** 0.5
    assert update.weight[0].tolist() == pytest.approx([2 * factor, 5.0, 0.0, 0.0])
    assert update.bias.tolist() == pytest.approx([-6 * factor])


@pytest.mark.parametrize("prior", [1, 20, 500])
def test_against_scipy(prior):
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    points, target = rng.normal(size=(80, 4)) @ mixing + 1, rng.normal(size=(30, 4)) * [1, 2, 3, 0.5] - 2
    head = head_of([1.0, -2.0, 0.5, 1.0], [0.0, 1.0, 1.0, 3.0])
    with torch.no_grad():
        head.bias.copy_(torch.tensor([1.0, -1.0]))
    weight, bias = head.weight.detach().numpy().copy(), head.bias.detach().numpy().copy()
    rule = regtta.Recolour(prior_samples=prior).start(context_of(head, source_of(points)))
    for part in torch.from_numpy(target).split([5, 11, 14]):
        update = rule.update(batch_of(part))
    matrix = map_by_scipy(points, target, prior)
    np.testing.assert_allclose(update.weight, weight @ matrix, rtol=1e-8)
    expected = bias + weight @ (points.mean(0) - matrix @ target.mean(0))
    np.testing.assert_allclose(update.bias, expected, rtol=1e-8)


def test_the_mapped_features_have_the_moments_of_the_source():
    """With a negligible prior, mean and covariance of the outputs are exactly those on the source."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))
    target = torch.from_numpy(rng.normal(size=(100_000, 4)) @ rng.normal(size=(4, 4)) + 3)
    rows = [[1.0, -2.0, 0.5, 1.0], [0.0, 1.0, 1.0, 3.0]]
    update = (
        regtta.Recolour(prior_samples=1).start(context_of(head_of(*rows), source_of(points))).update(batch_of(target))
    )
    outputs = (target @ update.weight.T + update.bias).numpy()
    expected = points @ np.array(rows).T
    np.testing.assert_allclose(outputs.mean(0), expected.mean(0), rtol=1e-8)
    np.testing.assert_allclose(np.cov(outputs, rowvar=False), np.cov(expected, rowvar=False), rtol=1e-3)


def test_directions_without_variance_on_the_source_are_not_scaled():
    rng = np.random.default_rng(2)
    points = rng.normal(size=(60, 4)) * [2, 1, 0, 0]
    target = torch.from_numpy(rng.normal(size=(40, 4)) * 3 + 1)
    rule = regtta.Recolour(prior_samples=5).start(context_of(head_of([1.0, 2.0, 3.0, 4.0]), source_of(points)))
    update = rule.update(batch_of(target))
    np.testing.assert_allclose(update.weight[0, 2:], [3.0, 4.0], rtol=1e-12)
    matrix = map_by_scipy(points[:, :2], target[:, :2].numpy(), 5)
    np.testing.assert_allclose(update.weight[0, :2], np.array([1.0, 2.0]) @ matrix, rtol=1e-8)


def test_a_sample_from_the_source_changes_little():
    model = small_models.mlp()
    data = small_models.table(4000)
    adapter = regtta.Adapter(model, regtta.Recolour(), regtta.collect(model, data.split(500)))
    list(adapter.run(data.split(500)))
    torch.testing.assert_close(adapter.predict(data), model(data).detach(), rtol=1e-3, atol=1e-3)


def test_features_of_tiny_and_huge_scales():
    rng = np.random.default_rng(3)
    scales = np.array([1e6, 1.0, 1e-1, 1e3])
    points, target = rng.normal(size=(60, 4)) * scales, rng.normal(size=(60, 4)) * scales * 2 + scales
    source = source_of(points)
    update = (
        regtta.Recolour(prior_samples=1)
        .start(context_of(head_of([1.0] * 4), source))
        .update(batch_of(torch.from_numpy(target)))
    )
    assert update.weight.isfinite().all()
    assert update.bias.isfinite().all()
    assert update.weight[0, 0].item() == pytest.approx(0.5, rel=0.3)


def test_invalid_options_and_states():
    with pytest.raises(OptionError, match="prior_samples to be a whole number of at least 1"):
        regtta.Recolour(prior_samples=0)
    model = small_models.mlp()
    adapter = regtta.Adapter(model, "recolour", regtta.collect(model, small_models.table(100).split(50)))
    adapter.adapt(small_models.table(20))
    state = adapter.state_dict()
    state["learner"]["rule"]["scatter"] = torch.zeros(3, 3, dtype=torch.float64)
    with pytest.raises(StateError, match="learner/rule/scatter"):
        adapter.load_state_dict(state)
