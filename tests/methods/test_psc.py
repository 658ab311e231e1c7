import numpy as np
import pytest
import torch

import regtta
from helpers import small_models
from helpers.method_inputs import batch_of, context_of, head_of, source_of
from regtta.errors import OptionError

POINTS = np.array([[4.0, 0, 0, 0], [-4.0, 0, 0, 0], [0, 2.0, 0, 0], [0, -2.0, 0, 0], [0, 0, 1.0, 0], [0, 0, -1.0, 0]])


def slack_of(slack, features, k=1, points=POINTS):
    """Return the slack term alone: the difference to CWSA."""
    context, batch = context_of(head_of([1.0, 0.0, 0.0, 0.0]), source_of(points)), batch_of(features)
    with_slack = regtta.PSC(k=k, slack=slack).start(context).update(batch)
    return (with_slack - regtta.CWSA(k=k).start(context).update(batch)).item()


def test_worked_example():
    # Source variances 32/5, 8/5, 2/5 and 0; outside e_1 their mean is τ = (8/5 + 2/5 + 0) / 3 = 2/3.
    # The batch outside e_1: (1, 0, 0), (3, 0, 0), (2, 3, 0), with mean (2, 1, 0) and variances 1, 3 and 0: ν = 4/3.
    # Per dimension ‖μ‖²/3 = 5/3, so that the divergence is ((5/3 + 4/3)/(2/3) + (5/3 + 2/3)/(4/3) − 2)/2 = 2.125.
    features = torch.tensor([[5.0, 1, 0, 0], [2.0, 3, 0, 0], [-1.0, 2, 3, 0]], dtype=torch.float64)
    assert slack_of(1.0, features) == pytest.approx(2.125)
    assert slack_of(0.5, features) == pytest.approx(1.0625)


def test_slack_against_the_divergence_of_gaussians_by_numpy():
    rng = np.random.default_rng(0)
    points, batch = rng.normal(size=(80, 4)) * [4, 3, 2, 1], rng.normal(0.5, 1.5, size=(12, 4))
    values, vectors = np.linalg.eigh(np.cov(points, rowvar=False))
    outside = vectors[:, ::-1][:, 2:]  # beyond k=2
    rest = (batch - points.mean(0)) @ outside
    mean, spread, tail = rest.mean(0), rest.var(0, ddof=1).mean() * np.eye(2), values[:2].mean() * np.eye(2)

    def kl(m, a, b):  # KL(N(m, a) ‖ N(0, b)) of full covariances
        inverse = np.linalg.inv(b)
        return (np.trace(inverse @ a) + m @ inverse @ m - 2 + np.log(np.linalg.det(b) / np.linalg.det(a))) / 2

    expected = (kl(mean, spread, tail) + kl(-mean, tail, spread)) / 2  # divided by the two dimensions outside
    assert slack_of(1.0, torch.from_numpy(batch), k=2, points=points) == pytest.approx(expected, rel=1e-9)


def test_without_variance_outside_the_loss_is_that_of_cwsa():
    features = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert slack_of(1.0, features, k=3) == 0
    everything = np.random.default_rng(0).normal(size=(30, 4))
    assert slack_of(1.0, features, k=4, points=everything) == 0


def test_gradients_agree_with_finite_differences():
    source = source_of(np.random.default_rng(0).normal(size=(50, 4)) * [4, 3, 2, 1])
    rule = regtta.PSC(k=2).start(context_of(head_of([1.0, -2.0, 0.5, 1.0]), source))
    features = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: rule.update(batch_of(z)), features)


def test_features_that_leave_the_subspace_are_drawn_back():
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(300).split(50))
    stream = small_models.table(64 * 40, shift=1.0, scale=1.5).split(64)
    adapter = regtta.Adapter(model, regtta.PSC(k=3, lr=1e-2), source)
    losses = [step.loss for step in adapter.run(stream)]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_invalid_options():
    with pytest.raises(OptionError, match="slack to be a number above 0"):
        regtta.PSC(slack=0)
