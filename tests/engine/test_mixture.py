"""Weights of a mixture against a float64 reimplementation, and its regret on adversarial streams with delays."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regtta.engine.mixture import INITIAL_GAP, Mixture, worst_case_regret
from regtta.errors import StateError

UNIT = st.floats(0, 1, allow_nan=False)
SAMPLES = st.lists(st.tuples(UNIT, UNIT, UNIT), min_size=1, max_size=60)


def run(stream, delays=(0,)):
    """Predict and label a stream of (source, adapted, label); sample t is labelled ``delays[t % len]`` samples later.

    A label may be a function of the prediction of the mixture. Returns the mixture, the prediction weights and the
    maximum delay in labels.
    """
    mixture, pending, weights, largest = Mixture(), [], [], 0

    def give(due):
        nonlocal largest
        for _, counted, losses in due:
            largest = max(largest, mixture.labels - counted)
            mixture.update(*losses)

    for time, (source, adapted, label) in enumerate(stream):
        weight = mixture.weight
        weights.append(weight)
        mean = (1 - weight) * source + weight * adapted
        y = label(mean) if callable(label) else label
        losses = (source - y) ** 2, (adapted - y) ** 2, (mean - y) ** 2
        pending.append((time + delays[time % len(delays)], mixture.labels, losses))
        give([item for item in pending if item[0] <= time])
        pending = [item for item in pending if item[0] > time]
    give(pending)
    return mixture, weights, largest


def assert_bounded(mixture, delay):
    regret = mixture.mixture_loss - min(mixture.source_loss, mixture.adapted_loss)
    assert regret <= mixture.regret_bound + 1e-9
    assert mixture.regret_bound <= worst_case_regret(mixture.labels, delay) + 1e-9
    return regret


def reference(losses):
    """Return weights before each label and the final bound, with cumulative sums and log-sum-exp in numpy."""
    losses = np.asarray(losses, dtype=np.float64)
    before = np.vstack([np.zeros(2), losses[:, :2].cumsum(axis=0)])
    gaps, largest, weights = [0.0], 2 * np.log(2) / 64, []
    for number, (source, adapted, mean) in enumerate(losses):
        rate = np.log(2) / largest
        log = -rate * before[number]
        log -= np.logaddexp.reduce(log)
        weights.append(np.exp(log[1]))
        mix = -np.logaddexp.reduce(log - rate * np.array([source, adapted])) / rate
        gaps.append(gaps[-1] + mean - mix)
        largest = max(largest, gaps[-1])
    return weights, gaps[-1] + largest


@given(SAMPLES)
def test_weights_and_bound_equal_a_float64_reimplementation(losses):
    mixture, weights = Mixture(), []
    for sample in losses:
        weights.append(mixture.weight)
        mixture.update(*sample)
    expected, bound = reference(losses)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)
    assert mixture.regret_bound == pytest.approx(bound, rel=1e-9, abs=1e-9)


@given(SAMPLES, st.lists(st.integers(0, 20), min_size=1, max_size=5))
def test_weights_are_on_the_simplex_and_the_regret_is_bounded(stream, delays):
    mixture, weights, largest = run(stream, delays)
    assert all(0 <= weight <= 1 for weight in weights)
    scores = mixture.scores()
    assert scores.source_weight + scores.adapted_weight == pytest.approx(1)
    assert_bounded(mixture, largest)


@given(st.lists(st.tuples(*[st.floats(0, 0.1)] * 3), min_size=1, max_size=40), st.randoms())
def test_the_order_of_labels_does_not_matter_while_the_learning_rate_is_constant(stream, random):
    # Squared errors of at most 0.01 are exp-concave at the first learning rate of 32, so that it never falls.
    ordered, *_ = run(stream)
    random.shuffle(stream)
    shuffled, *_ = run(stream)
    assert ordered.largest_gap == shuffled.largest_gap == INITIAL_GAP
    assert shuffled.weight == pytest.approx(ordered.weight, rel=1e-9)
    difference = shuffled.source_loss - shuffled.adapted_loss
    assert ordered.weight == pytest.approx(1 / (1 + math.exp(-32 * difference)), rel=1e-9)


@given(SAMPLES)
def test_sums_of_losses_do_not_depend_on_the_order(losses):
    first, second = Mixture(), Mixture()
    for forward, backward in zip(losses, reversed(losses), strict=True):
        first.update(*forward)
        second.update(*backward)
    assert second.source_loss == pytest.approx(first.source_loss)
    assert second.adapted_loss == pytest.approx(first.adapted_loss)


def alternating(samples, block):
    """Return a stream in which the better model changes every ``block`` samples."""
    return [(0.0, 1.0, float(time // block % 2)) for time in range(samples)]


def against_the_mixture(samples):
    """Return a stream whose label is the end of the range farther from the prediction of the mixture."""
    return [(0.0, 1.0, lambda mean: float(mean < 0.5))] * samples


def at_random(samples, seed=0):
    return [tuple(row) for row in np.random.default_rng(seed).random((samples, 3)).tolist()]


STREAMS = {
    "alternating every sample": alternating(3000, 1),
    "alternating every 50": alternating(3000, 50),
    "alternating every 500": alternating(3000, 500),
    "adaptive": against_the_mixture(3000),
    "random": at_random(3000),
    "one model perfect": [(0.0, 1.0, 1.0)] * 3000,
    "late change": alternating(3000, 2000),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("delays", [(0,), (1,), (50,), (500,), (0, 7, 93), (400, 0)], ids=str)
def test_the_regret_on_adversarial_streams_is_within_the_bound(name, delays):
    mixture, _, largest = run(STREAMS[name], delays)
    assert mixture.labels == 3000
    assert largest >= min(max(delays), 1)
    assert_bounded(mixture, largest)


@pytest.mark.parametrize("samples", [100, 1000, 10_000])
@pytest.mark.parametrize("make", [against_the_mixture, at_random, lambda n: alternating(n, 1)])
def test_the_regret_without_delay_does_not_grow_with_the_number_of_labels(make, samples):
    mixture, _, largest = run(make(samples))
    assert largest == 0
    assert_bounded(mixture, 0)
    assert worst_case_regret(samples, 0) == pytest.approx(2 * (2 * math.log(2) + 1))


def test_a_constant_learning_rate_would_exceed_the_bound_on_a_delayed_stream():
    """The adaptive stream with a delay shows that the learning rate has to fall."""
    delay, losses = 50, []
    for time in range(3000):
        odds = sum(source - adapted for source, adapted, _ in losses[: max(0, time - delay)])
        mean = (1 + math.tanh(32 * odds / 2)) / 2  # the models predict 0 and 1, so that the weight is the mean
        label = float(mean < 0.5)
        losses.append((label**2, (1 - label) ** 2, (mean - label) ** 2))
    totals = np.sum(losses, axis=0)
    mixture, _, largest = run(against_the_mixture(3000), (delay,))
    assert totals[2] - totals[:2].min() > worst_case_regret(3000, largest) > assert_bounded(mixture, largest)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": -1}, "labels"),
        ({"labels": True}, "labels"),
        ({"source_loss": -0.1}, "source_loss"),
        ({"adapted_loss": 3.5}, "adapted_loss"),
        ({"mixture_loss": math.nan}, "mixture_loss"),
        ({"gap": math.inf}, "gap"),
        ({"largest_gap": 0.0}, "largest_gap"),
        ({"largest_gap": 1e300}, "largest_gap"),
        ({"gap": 2.0, "largest_gap": 1.0}, "largest_gap"),
        ({"rate": 1.0}, "rate"),
    ],
)
def test_invalid_sums_are_refused(changes, words):
    mixture, *_ = run(at_random(3))
    state = mixture.state_dict()
    assert Mixture.from_state(state, "mixture") == mixture
    with pytest.raises(StateError, match=f"mixture/{words}"):
        Mixture.from_state(state | changes, "mixture")
