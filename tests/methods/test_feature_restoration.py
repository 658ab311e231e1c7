import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy as relative_entropy

import regtta
from helpers import small_models
from helpers.method_inputs import FEATURES, batch_of, context_of, head_of, source_of
from regtta.errors import OptionError, StatisticsError
from regtta.methods.losses import histogram_divergence, soft_histogram


def histogram_by_numpy(values, low, high, bins, temperature):
    """Return the soft binning of Yang, Morillo and Hospedales, computed from its definition."""
    out = np.empty((values.shape[1], bins))
    for d in range(values.shape[1]):
        u = (values[:, d] - low[d]) / (high[d] - low[d])
        cuts = np.arange(1, bins) / bins
        w, b = np.arange(1, bins + 1), np.concatenate([[0], -np.cumsum(cuts)])
        out[d] = softmax((u[:, None] * w + b) / temperature, axis=1).mean(0)
    return out


def test_soft_histogram_against_numpy():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 3))
    low, high = values.min(0), values.max(0)
    soft = soft_histogram(*map(torch.from_numpy, (values, low, high)), 8, 0.01).numpy()
    np.testing.assert_allclose(soft, histogram_by_numpy(values, low, high, 8, 0.01), rtol=1e-9)
    np.testing.assert_allclose(soft.sum(1), 1)
    sharp = soft_histogram(*map(torch.from_numpy, (values, low, high)), 8, 1e-6).numpy()
    for d in range(3):
        hard = np.histogram(values[:, d], bins=8, range=(low[d], high[d]))[0] / 200
        np.testing.assert_allclose(sharp[d], hard, atol=1e-6)


def test_histogram_divergence_against_scipy():
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(8), size=3) for _ in range(2))
    expected = [relative_entropy(a, b) + relative_entropy(b, a) for a, b in zip(p, q, strict=True)]
    got = histogram_divergence(torch.from_numpy(p), torch.from_numpy(q), 0.0)
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    assert np.isfinite(histogram_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), 1e-8).item())


def extras_of(low, high, probabilities, temperature=1e-4):
    return {
        f"feature_restoration/{key}": torch.as_tensor(value, dtype=torch.float64)
        for key, value in (
            ("low", low),
            ("high", high),
            ("probabilities", probabilities),
            ("temperature", [temperature]),
        )
    }


def test_worked_example():
    # Ranges 0..6 for four features and for one output; two bins at a temperature that makes them hard.
    # Features (columns) fall into the bins (low, high): (1, 3, 2) -> 2.5/3 : 0.5/3 (the 3 lies on the edge), (0, 0, 6)
    # -> 2/3 : 1/3, (2, 0, 1) -> 1 : 0, (0, 4, 2) -> 2/3 : 1/3; outputs (1, 5, 2) -> 2/3 : 1/3. The source: 1/2 : 1/2.
    source = source_of(torch.randn(9, 4), extras=extras_of([0.0] * 5, [6.0] * 5, np.full((5, 2), 0.5)))
    method = regtta.FeatureRestoration(bins=2, temperature=1e-4, epsilon=0.01)
    rule = method.start(context_of(head_of([1.0] * 4), source))
    loss = rule.update(batch_of(FEATURES, outputs=torch.tensor([1.0, 5.0, 2.0]).double()))
    shares = np.array([2.5 / 3, 2 / 3, 1.0, 2 / 3, 2 / 3])
    p, q = np.stack([shares, 1 - shares]) + 0.01, 0.51
    assert loss.item() == pytest.approx(((p - q) * np.log(p / q)).sum(), rel=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_loss_of_a_model_against_numpy(outputs):
    model = small_models.mlp(outputs).double()
    with torch.no_grad():  # a dead feature has no range, and is left out
        model[4].weight[0], model[4].bias[0] = 0, -1
    method = regtta.FeatureRestoration(batch_norm="source")
    source = regtta.collect(model, small_models.table(300).double().split(50), methods=[method])
    x = small_models.table(30, shift=0.6, seed=4).double()
    with torch.no_grad():
        whole, batch = (
            np.concatenate([model[:6](v).numpy(), model(v).numpy()], axis=1)
            for v in (small_models.table(300).double(), x)
        )
    low, high = whole.min(0), whole.max(0)
    keep = high > low
    assert not keep[0]
    q, p = (histogram_by_numpy(v[:, keep], low[keep], high[keep], 8, 0.01) + 1e-8 for v in (whole, batch))
    step = regtta.Adapter(model, method, source).adapt(x)
    assert step.diagnostics.loss == pytest.approx(((p - q) * np.log(p / q)).sum(), rel=1e-6)


def test_nearly_constant_source_dimensions_are_excluded():
    model = small_models.mlp()
    with torch.no_grad():  # one feature whose range is lost beside the others'
        model[4].weight[0] *= 1e-30
        model[4].bias[0] = 1e-32
    method = regtta.FeatureRestoration()
    source = regtta.collect(model, small_models.table(300).split(50), methods=[method])
    ranges = source.extras["feature_restoration/high"] - source.extras["feature_restoration/low"]
    assert 0 < ranges[0] < 1e-25
    assert regtta.Adapter(model, method, source).adapt(small_models.table(30, shift=2.0)).diagnostics.verdict.learned


def test_gradients_agree_with_finite_differences():
    source = source_of(torch.randn(9, 4), extras=extras_of([0.0] * 8, [6.0] * 8, np.full((8, 4), 0.25), 0.2))
    rule = regtta.FeatureRestoration(bins=4, temperature=0.2).start(context_of(head_of([1.0] * 4), source))
    features = FEATURES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(z)), features)


def test_two_passes_need_a_loader_that_can_be_iterated_again():
    model = small_models.mlp()
    method = regtta.FeatureRestoration()
    with pytest.raises(StatisticsError, match="feature_restoration needs 2 passes.*is an iterator"):
        regtta.collect(model, iter(small_models.table(60).split(20)), methods=[method])
    seen = []
    source = regtta.collect(model, small_models.table(60).split(20), methods=[method], progress=seen.append)
    assert seen == [20, 40, 60, 80, 100, 120]
    assert source.count == 60
    plain = regtta.collect(model, small_models.table(60).split(20))
    assert torch.equal(plain.variances, source.variances)
    uneven = regtta.collect(model, small_models.table(60).split(7), methods=[method])
    key = "feature_restoration/probabilities"
    torch.testing.assert_close(uneven.extras[key], source.extras[key], rtol=1e-4, atol=1e-5)


def test_a_loader_with_fewer_samples_in_the_second_pass_raises():
    class Shrinking:
        passes = 0

        def __iter__(self):
            self.passes += 1
            yield from small_models.table(60).split(20)[self.passes - 1 :]

    with pytest.raises(StatisticsError, match="60 samples in its first pass and 40 in pass 2"):
        regtta.collect(small_models.mlp(), Shrinking(), methods=[regtta.FeatureRestoration()])


def test_missing_or_incompatible_histograms_raise():
    model = small_models.mlp()
    plain = regtta.collect(model, small_models.table(60).split(20))
    with pytest.raises(StatisticsError, match=r"methods=\[regtta.create_method\('feature_restoration'\)\]"):
        regtta.Adapter(model, regtta.FeatureRestoration(), plain)
    source = regtta.collect(model, small_models.table(60).split(20), methods=[regtta.FeatureRestoration()])
    with pytest.raises(StatisticsError, match="have 8 bins at temperature 0.01, not 4 at 0.01"):
        regtta.Adapter(model, regtta.FeatureRestoration(bins=4), source)
    with pytest.raises(StatisticsError, match="not 8 at 0.1"):
        regtta.Adapter(model, regtta.FeatureRestoration(temperature=0.1), source)
    with pytest.raises(OptionError, match="temperature to be a number above 0"):
        regtta.FeatureRestoration(temperature=0)
