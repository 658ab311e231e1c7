"""Signals, compared with the same statistics computed by numpy from all samples."""

import math

import numpy as np
import pytest
import torch
from regtta.engine.callbacks import StepView
from scipy import stats
from torch import nn

import regtta
from helpers import monitored_stream, small_models
from helpers.attaching import attach
from regtta.models.features import Forward
from regtta.monitoring import FeatureShift
from regtta.monitoring.estimator import SignalEstimator
from regtta.statistics.moments import EwmaMoments
from regtta.statistics.shift_tests import shift_test, stationarity_statistic
from regtta.types import Diagnostics, Step, Verdict

MEMORY = 100


def step_view(source, answered=None, returned="", index=0):
    verdict = Verdict(learned=not returned, reason="why" if returned else "", returned=returned)
    step = Step(index, (answered or source).outputs, Diagnostics(None, None, 0.0, verdict))
    return StepView(step, answered or source, source)


@pytest.fixture(scope="module")
def setting():
    model = small_models.mlp(2).double()
    data = small_models.table(3000, seed=5).double()
    statistics = regtta.collect(model, data.split(300))
    features = model[:6](data).detach()
    return model, statistics, features


def estimator_of(setting, **changes):
    model, statistics, _ = setting
    options = {"memory": MEMORY, "least": 32, "level": 1e-3, "tolerance": 0.1, **changes}
    return SignalEstimator(statistics, model[6], **options)


def passes(setting, batches=9, size=16, seed=1, scale=1.0):
    """Yield forward passes of the source model and of the adapted model, whose features are shifted."""
    model, _, features = setting
    torch.manual_seed(seed)
    for _ in range(batches):
        at_source = features[torch.randint(len(features), (size,))] * 1.3 + 0.2
        at_adapted = at_source * 0.8 - 0.1
        yield Forward(at_source, scale * model[6](at_source)), Forward(at_adapted, scale * model[6](at_adapted))


def weighted(batches):
    """Return all rows and their exponential weights."""
    weights, age = [], 0
    for batch in reversed(batches):
        weights.append(np.full(len(batch), math.exp(-age / MEMORY)))
        age += len(batch)
    return np.concatenate(batches), np.concatenate(weights[::-1])


def moments(batches):
    rows, weights = weighted([small_models.numpy64(batch) for batch in batches])
    mean = np.average(rows, axis=0, weights=weights)
    return mean, np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights)), rows, weights


def whitened(setting, features):
    _, _, source = setting
    rows = small_models.numpy64(source)
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    order = np.argsort(values)[::-1]
    share = np.cumsum(values[order]) / values.sum()
    k = int(np.searchsorted(share, 0.99) + 1)
    chosen = order[:k]
    return (small_models.numpy64(features) - rows.mean(axis=0)) @ vectors[:, chosen] / np.sqrt(values[chosen])


@pytest.mark.parametrize("scale", [1.0, -40.0])
def test_evidence_agrees_with_numpy(setting, scale):
    """A model that rescales the outputs of its head has the same signals."""
    model, _, features = setting
    estimator = estimator_of(setting)
    seen = list(passes(setting, scale=scale))
    for at_source, at_adapted in seen:
        estimator.update(step_view(at_source, at_adapted))
    evidence = estimator.evidence()

    for shift, side in ((evidence.source, 0), (evidence.adapted, 1)):
        mean, sd, _, weights = moments([torch.from_numpy(whitened(setting, pair[side].features)) for pair in seen])
        # The sign of an eigenvector is arbitrary, and with it that of the mean.
        np.testing.assert_allclose(np.abs(shift.means), np.abs(mean), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(shift.deviations, sd, rtol=1e-6)
        np.testing.assert_allclose(shift.misalignment, (mean**2 + (sd - 1) ** 2).sum(), rtol=1e-6)
        np.testing.assert_allclose(shift.size, np.sqrt(np.mean(mean**2 + (sd - 1) ** 2)), rtol=1e-6)
        if side == 0:
            count = weights.sum() ** 2 / (weights**2).sum()
            assert evidence.reweighting == pytest.approx(max(0, (mean**2).sum() - (sd**2).sum() / count), rel=1e-6)
            assert estimator.count == pytest.approx(count)
    assert evidence.alignment_gain == pytest.approx(evidence.source.misalignment - evidence.adapted.misalignment)

    usual = small_models.numpy64(model[6](features))
    unit = usual.std(axis=0, ddof=1)
    for outputs, side in ((evidence.outputs_source, 0), (evidence.outputs_adapted, 1)):
        mean, sd, _, _ = moments([pair[side].outputs / scale for pair in seen])
        np.testing.assert_allclose(outputs.means, (mean - usual.mean(axis=0)) / unit, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(outputs.deviations, sd / unit, rtol=1e-5)
    gaps, weights = weighted([small_models.numpy64(b.outputs - a.outputs) / scale for a, b in seen])
    expected = np.sqrt(np.mean(np.average(gaps**2, axis=0, weights=weights) / unit**2))
    assert evidence.disagreement == pytest.approx(expected, rel=1e-5)


def test_beyond_chance_and_steadiness_are_the_ratios_of_the_tests(setting):
    model, statistics, _ = setting
    estimator, recent, outputs = estimator_of(setting), EwmaMoments(MEMORY), []
    for at_source, _ in passes(setting):
        estimator.update(step_view(at_source))
        recent.update(estimator.whitening(at_source.features))
        outputs.append(model[6](at_source.features).detach())
    test = shift_test(recent, source_count=statistics.count, level=1e-3, tolerance=0.1)
    assert estimator.evidence().beyond_chance == max(test.mean, test.spread)
    last = torch.cat(outputs)[-MEMORY:]
    assert estimator.evidence().steadiness == stationarity_statistic(last, 32, 1e-3)
    # Variances are summed over outputs; the degrees of freedom follow from their covariance within blocks.
    blocks = small_models.numpy64(last[-96:]).reshape(3, 32, 2)
    within = np.mean([np.cov(block.T) for block in blocks], axis=0)
    columns = np.trace(within) ** 2 / (within**2).sum()
    f = 32 * blocks.mean(axis=1).var(axis=0, ddof=1).sum() / np.trace(within)
    limit = stats.f.isf(1e-3, 2 * columns, 93 * columns)
    assert estimator.evidence().steadiness == pytest.approx(f / limit, rel=0.03)


def test_equal_models_have_equal_shifts_and_no_disagreement(setting):
    estimator = estimator_of(setting)
    for at_source, _ in passes(setting):
        estimator.update(step_view(at_source))
    evidence = estimator.evidence()
    assert evidence.source == evidence.adapted
    assert evidence.outputs_source == evidence.outputs_adapted
    assert (evidence.disagreement, evidence.alignment_gain, estimator.moved) == (0.0, 0.0, False)


def test_no_evidence_from_few_samples(setting):
    estimator = estimator_of(setting)
    for number, (at_source, at_adapted) in enumerate(passes(setting, batches=40, size=1)):
        estimator.update(step_view(at_source, at_adapted))
        assert (estimator.evidence() is None) == (estimator.count < 32), number
    assert estimator.evidence() is not None


def test_a_rollback_discards_the_moments_of_the_adapted_model(setting):
    estimator = estimator_of(setting, least=16)
    pairs = list(passes(setting))
    for pair in pairs[:5]:
        estimator.update(step_view(*pair))
    assert estimator.evidence().disagreement > 0.1
    estimator.update(step_view(*pairs[5], returned="good"))
    only = estimator_of(setting, least=16)
    only.update(step_view(*pairs[5]))
    assert estimator.evidence().adapted == only.evidence().adapted
    assert estimator.evidence().disagreement == pytest.approx(only.evidence().disagreement)
    assert estimator.evidence().source != only.evidence().source
    estimator.update(step_view(pairs[6][0]))  # rolled back by the user, without a verdict
    assert estimator.evidence().disagreement == 0.0
    assert estimator.evidence().adapted == estimator.evidence().source


def test_non_finite_samples_are_ignored(setting):
    whole, broken = estimator_of(setting), estimator_of(setting)
    for at_source, at_adapted in passes(setting):
        whole.update(step_view(at_source, at_adapted))
        bad = torch.full((1, at_source.features.shape[1]), torch.nan, dtype=torch.float64)
        worse = torch.full((1, 2), torch.inf, dtype=torch.float64)
        broken.update(
            step_view(
                *(Forward(torch.cat([bad, p.features]), torch.cat([worse, p.outputs])) for p in (at_source, at_adapted))
            )
        )
    for side in ("source", "adapted"):
        expected = getattr(whole.evidence(), side)
        np.testing.assert_allclose(getattr(broken.evidence(), side).means, expected.means, rtol=1e-9)
        np.testing.assert_allclose(getattr(broken.evidence(), side).deviations, expected.deviations, rtol=1e-9)
    assert broken.evidence().disagreement == pytest.approx(whole.evidence().disagreement)
    assert broken.count == whole.count


def test_transformed_outputs_are_compared_at_the_head(setting):
    estimator, plain = estimator_of(setting), estimator_of(setting)
    for at_source, at_adapted in passes(setting):
        plain.update(step_view(at_source, at_adapted))
        odd = [Forward(p.features, torch.zeros(len(p.features), 7)) for p in (at_source, at_adapted)]
        estimator.update(step_view(*odd))
    assert estimator.evidence().disagreement == pytest.approx(plain.evidence().disagreement, rel=1e-9)


@pytest.mark.parametrize("bias", [True, False])
def test_a_flat_output_with_and_without_a_bias(bias):
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1, bias=bias), nn.Flatten(0))
    monitor = attach(regtta.Monitor(), monitored_stream.adapter(regtta.NoAdaptation(), model=Headed(model)))
    for x in monitored_stream.stream(10):
        monitor.adapt(x)
    assert abs(monitor.signals.evidence.outputs_source.means[0]) < 0.3


class Headed(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def test_feature_shift_in_closed_form():
    shift = FeatureShift((1.0, -2.0), (1.0, 0.5))
    assert shift.sizes == (1.0, math.hypot(2, 0.5))
    assert shift.misalignment == pytest.approx(1 + 4 + 0.25)
    assert shift.size == pytest.approx(math.sqrt(5.25 / 2))


def test_features_that_overflow_float64_are_a_shift():
    recent = EwmaMoments(MEMORY)
    recent.update(torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double() * 1e80)
    test = shift_test(recent, source_count=1000, level=1e-3, tolerance=0.1)
    assert test.shifted
    assert test.mean == math.inf
