"""Every signal against the same number in numpy, from the samples themselves."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import regtta
from helpers import monitored_stream, small_models
from regtta.engine.callbacks import StepView
from regtta.models.features import Forward
from regtta.monitoring import Shift
from regtta.monitoring.estimator import SignalEstimator
from regtta.statistics.moments import EwmaMoments
from regtta.statistics.shift_tests import shift_test, stationarity_statistic
from regtta.types import Diagnostics, Step, Verdict

MEMORY = 100


def sight(source, answered=None, returned="", index=0):
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


def gauge(setting, **changes):
    model, statistics, _ = setting
    options = {"memory": MEMORY, "least": 32, "level": 1e-3, "tolerance": 0.1, **changes}
    return SignalEstimator(statistics, model[6], **options)


def passes(setting, batches=9, size=16, seed=1, scale=1.0):
    """(source's, adapted's) passes; the adapted model's features are shifted ones."""
    model, _, features = setting
    torch.manual_seed(seed)
    for _ in range(batches):
        at_source = features[torch.randint(len(features), (size,))] * 1.3 + 0.2
        at_adapted = at_source * 0.8 - 0.1
        yield Forward(at_source, scale * model[6](at_source)), Forward(at_adapted, scale * model[6](at_adapted))


def weighted(batches):
    """Rows and weights that an exponential memory gives them, batch by batch."""
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
def test_every_number_is_that_of_the_samples(setting, scale):
    """A model that changes its units after the head gives the same signals."""
    model, _, features = setting
    measured = gauge(setting)
    seen = list(passes(setting, scale=scale))
    for at_source, at_adapted in seen:
        measured.see(sight(at_source, at_adapted))
    told = measured.evidence()

    for shift, side in ((told.source, 0), (told.adapted, 1)):
        mean, sd, _, weights = moments([torch.from_numpy(whitened(setting, pair[side].features)) for pair in seen])
        # Eigenvectors have no sign: neither have the means along them.
        np.testing.assert_allclose(np.abs(shift.means), np.abs(mean), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(shift.deviations, sd, rtol=1e-6)
        np.testing.assert_allclose(shift.misalignment, (mean**2 + (sd - 1) ** 2).sum(), rtol=1e-6)
        np.testing.assert_allclose(shift.size, np.sqrt(np.mean(mean**2 + (sd - 1) ** 2)), rtol=1e-6)
        if side == 0:
            count = weights.sum() ** 2 / (weights**2).sum()
            assert told.reweighting == pytest.approx(max(0, (mean**2).sum() - (sd**2).sum() / count), rel=1e-6)
            assert measured.count == pytest.approx(count)
    assert told.alignment_gain == pytest.approx(told.source.misalignment - told.adapted.misalignment)

    usual = small_models.numpy64(model[6](features))
    unit = usual.std(axis=0, ddof=1)
    for outputs, side in ((told.outputs_source, 0), (told.outputs_adapted, 1)):
        mean, sd, _, _ = moments([pair[side].outputs / scale for pair in seen])
        np.testing.assert_allclose(outputs.means, (mean - usual.mean(axis=0)) / unit, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(outputs.deviations, sd / unit, rtol=1e-5)
    gaps, weights = weighted([small_models.numpy64(b.outputs - a.outputs) / scale for a, b in seen])
    expected = np.sqrt(np.mean(np.average(gaps**2, axis=0, weights=weights) / unit**2))
    assert told.disagreement == pytest.approx(expected, rel=1e-5)


def test_beyond_chance_and_steadiness_are_those_tests(setting):
    model, statistics, _ = setting
    measured, recent, outputs = gauge(setting), EwmaMoments(MEMORY), []
    for at_source, _ in passes(setting):
        measured.see(sight(at_source))
        recent.update(measured.whitening(at_source.features))
        outputs.append(model[6](at_source.features).detach())
    test = shift_test(recent, source_count=statistics.count, level=1e-3, tolerance=0.1)
    assert measured.evidence().beyond_chance == max(test.mean, test.spread)
    last = torch.cat(outputs)[-MEMORY:]
    assert measured.evidence().steadiness == stationarity_statistic(last, 32, 1e-3)
    # Variances summed over the outputs, which count as as many columns as their covariance within blocks has.
    blocks = small_models.numpy64(last[-96:]).reshape(3, 32, 2)
    within = np.mean([np.cov(block.T) for block in blocks], axis=0)
    columns = np.trace(within) ** 2 / (within**2).sum()
    f = 32 * blocks.mean(axis=1).var(axis=0, ddof=1).sum() / np.trace(within)
    limit = stats.f.isf(1e-3, 2 * columns, 93 * columns)
    assert measured.evidence().steadiness == pytest.approx(f / limit, rel=0.03)


def test_one_pass_for_both_models_is_one_shift_and_no_disagreement(setting):
    measured = gauge(setting)
    for at_source, _ in passes(setting):
        measured.see(sight(at_source))
    told = measured.evidence()
    assert told.source == told.adapted
    assert told.outputs_source == told.outputs_adapted
    assert (told.disagreement, told.alignment_gain, measured.moved) == (0.0, 0.0, False)


def test_nothing_is_said_of_a_few_samples(setting):
    measured = gauge(setting)
    for number, (at_source, at_adapted) in enumerate(passes(setting, batches=40, size=1)):
        measured.see(sight(at_source, at_adapted))
        assert (measured.evidence() is None) == (measured.count < 32), number
    assert measured.evidence() is not None


def test_what_was_seen_before_a_return_is_forgotten(setting):
    measured = gauge(setting, least=16)
    pairs = list(passes(setting))
    for pair in pairs[:5]:
        measured.see(sight(*pair))
    assert measured.evidence().disagreement > 0.1
    measured.see(sight(*pairs[5], returned="good"))
    only = gauge(setting, least=16)
    only.see(sight(*pairs[5]))
    assert measured.evidence().adapted == only.evidence().adapted
    assert measured.evidence().disagreement == pytest.approx(only.evidence().disagreement)
    assert measured.evidence().source != only.evidence().source
    measured.see(sight(pairs[6][0]))  # by hand, without a verdict that says so
    assert measured.evidence().disagreement == 0.0
    assert measured.evidence().adapted == measured.evidence().source


def test_samples_that_are_not_finite_are_left_out(setting):
    whole, broken = gauge(setting), gauge(setting)
    for at_source, at_adapted in passes(setting):
        whole.see(sight(at_source, at_adapted))
        bad = torch.full((1, at_source.features.shape[1]), torch.nan, dtype=torch.float64)
        worse = torch.full((1, 2), torch.inf, dtype=torch.float64)
        broken.see(
            sight(
                *(Forward(torch.cat([bad, p.features]), torch.cat([worse, p.outputs])) for p in (at_source, at_adapted))
            )
        )
    for side in ("source", "adapted"):
        expected = getattr(whole.evidence(), side)
        np.testing.assert_allclose(getattr(broken.evidence(), side).means, expected.means, rtol=1e-9)
        np.testing.assert_allclose(getattr(broken.evidence(), side).deviations, expected.deviations, rtol=1e-9)
    assert broken.evidence().disagreement == pytest.approx(whole.evidence().disagreement)
    assert broken.count == whole.count


def test_outputs_that_are_no_heads_are_compared_at_the_head(setting):
    measured, plain = gauge(setting), gauge(setting)
    for at_source, at_adapted in passes(setting):
        plain.see(sight(at_source, at_adapted))
        odd = [Forward(p.features, torch.zeros(len(p.features), 7)) for p in (at_source, at_adapted)]
        measured.see(sight(*odd))
    assert measured.evidence().disagreement == pytest.approx(plain.evidence().disagreement, rel=1e-9)


@pytest.mark.parametrize("bias", [True, False])
def test_models_of_one_flat_output_without_a_bias(bias):
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1, bias=bias), nn.Flatten(0))
    watched = regtta.Monitor(monitored_stream.adapter(regtta.Source(), model=Headed(model)))
    for x in monitored_stream.stream(10):
        watched.adapt(x)
    assert abs(watched.signals.evidence.outputs_source.means[0]) < 0.3


class Headed(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def test_a_shift_by_hand():
    shift = Shift((1.0, -2.0), (1.0, 0.5))
    assert shift.sizes == (1.0, math.hypot(2, 0.5))
    assert shift.misalignment == pytest.approx(1 + 4 + 0.25)
    assert shift.size == pytest.approx(math.sqrt(5.25 / 2))


def test_features_too_far_off_for_float64_are_a_shift_and_no_error():
    recent = EwmaMoments(MEMORY)
    recent.update(torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double() * 1e80)
    test = shift_test(recent, source_count=1000, level=1e-3, tolerance=0.1)
    assert test.shifted
    assert test.mean == math.inf
