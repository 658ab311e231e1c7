import math

import numpy as np
import pytest
import scipy.stats
import torch

from regtta.errors import BatchError, OptionError
from regtta.selection import compare_losses


def studentised_bootstrap(differences: np.ndarray, rows: np.ndarray, tail: float) -> list[tuple[float, float]]:
    """Compute the simultaneous intervals one resample and one candidate at a time."""
    candidates = differences.shape[1]
    means = [float(np.mean(differences[:, j])) for j in range(candidates)]
    errors = [scipy.stats.sem(differences[:, j]) for j in range(candidates)]
    largest, smallest = [], []
    for drawn in rows:
        sample = differences[drawn]
        found = [(sample[:, j].mean() - means[j]) / scipy.stats.sem(sample[:, j]) for j in range(candidates)]
        largest.append(max(found))
        smallest.append(min(found))
    upper = np.quantile(largest, 1 - tail, method="inverted_cdf")
    lower = -np.quantile(-np.array(smallest), 1 - tail, method="inverted_cdf")
    return [(means[j] - upper * errors[j], means[j] - lower * errors[j]) for j in range(candidates)]


def test_the_intervals_are_those_of_the_studentised_bootstrap():
    rng = np.random.default_rng(0)
    baseline, candidates = rng.exponential(size=20), rng.exponential(size=(20, 3)) ** 2
    rows = torch.randint(20, (500, 20), generator=torch.Generator().manual_seed(7)).numpy()
    expected = studentised_bootstrap(baseline[:, None] - candidates, rows, 0.05)
    found = compare_losses(torch.tensor(baseline), torch.tensor(candidates), confidence=0.9, resamples=500, seed=7)
    np.testing.assert_allclose([(each.low, each.high) for each in found], expected, rtol=1e-9)
    assert [each.gain for each in found] == pytest.approx(list((baseline[:, None] - candidates).mean(axis=0)))


def test_one_candidate_with_many_normal_differences_has_the_interval_of_student_t():
    differences = np.random.default_rng(1).normal(0.3, 2.0, size=2000)
    test = scipy.stats.ttest_1samp(differences, 0.0)
    expected = test.confidence_interval(0.95)
    (found,) = compare_losses(torch.tensor(differences), torch.zeros(2000, 1), resamples=20_000)
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.03 * width)
    assert found.high == pytest.approx(expected.high, abs=0.03 * width)
    (weak,) = compare_losses(torch.tensor(differences[:200]), torch.zeros(200, 1), resamples=20_000)
    assert weak.p_value == pytest.approx(scipy.stats.ttest_1samp(differences[:200], 0.0).pvalue, rel=0.2)


def test_the_interval_covers_the_mean_of_skewed_differences_better_than_student_t():
    # Differences of a candidate that helps a little on most samples and harms 5 % severely; their mean is zero.
    rng, missed, missed_by_t = np.random.default_rng(2), 0, 0
    for _ in range(200):
        differences = np.where(rng.random(64) < 0.05, -19.0, 1.0) + 0.1 * rng.normal(size=64)
        (found,) = compare_losses(torch.tensor(differences), torch.zeros(64, 1), resamples=1000)
        missed += not found.low <= 0 <= found.high
        by_t = scipy.stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
        missed_by_t += not by_t.low <= 0 <= by_t.high
    assert missed <= 0.05 * 200 + 2.6 * math.sqrt(200 * 0.05 * 0.95)
    assert missed_by_t > missed


def test_p_value_and_interval_agree():
    generator = torch.Generator().manual_seed(3)
    baseline = torch.rand(40, generator=generator)
    candidates = baseline[:, None] + 0.2 * torch.randn(40, 12, generator=generator) - torch.linspace(-0.1, 0.2, 12)
    found = compare_losses(baseline, candidates, confidence=0.9)
    for each in found:
        assert (each.low > 0 or each.high < 0) == (each.p_value < 0.1)
        assert each.helps == (each.low > 0)
    assert {each.helps for each in found} == {True, False}


def test_further_candidates_widen_the_intervals():
    generator = torch.Generator().manual_seed(4)
    baseline, candidates = torch.rand(50, generator=generator), torch.rand(50, 8, generator=generator)
    alone, together = compare_losses(baseline, candidates[:, :1])[0], compare_losses(baseline, candidates)[0]
    assert together.low < alone.low < alone.high < together.high
    assert together.gain == alone.gain


def test_copies_of_a_candidate_cost_nothing():
    generator = torch.Generator().manual_seed(5)
    baseline, candidate = torch.rand(30, generator=generator), torch.rand(30, 1, generator=generator)
    (alone,) = compare_losses(baseline, candidate)
    for each in compare_losses(baseline, candidate.expand(30, 5)):
        assert (each.low, each.high, each.p_value) == pytest.approx((alone.low, alone.high, alone.p_value))


def test_the_unit_of_the_losses_scales_the_interval():
    generator = torch.Generator().manual_seed(6)
    baseline, candidates = torch.rand(30, generator=generator), torch.rand(30, 2, generator=generator)
    small, large = (compare_losses(unit * baseline, unit * candidates.double()) for unit in (1.0, 1e9))
    for one, other in zip(small, large, strict=True):
        assert (other.low / 1e9, other.high / 1e9) == pytest.approx((one.low, one.high), rel=1e-5)


def test_every_candidate_may_have_its_own_baseline():
    generator = torch.Generator().manual_seed(8)
    baselines, candidates = (torch.rand(30, 2, generator=generator) for _ in range(2))
    found = compare_losses(baselines, candidates)
    assert [each.gain for each in found] == pytest.approx((baselines - candidates).mean(dim=0).tolist(), rel=1e-5)
    assert found == compare_losses(torch.zeros(30), candidates - baselines)


def test_equal_losses_are_no_gain():
    losses = torch.rand(20)
    (found,) = compare_losses(losses, losses[:, None])
    assert (found.gain, found.low, found.high, found.p_value, found.helps) == (0.0, 0.0, 0.0, 1.0, False)


def test_a_constant_difference_has_no_bounded_interval():
    (found,) = compare_losses(torch.ones(20), torch.zeros(20, 1))
    assert (found.low, found.high, found.p_value) == (-math.inf, math.inf, 1.0)


def test_one_sample_that_differs_shows_nothing():
    candidate = torch.ones(32, 1)
    candidate[3] = 0.0
    (found,) = compare_losses(torch.ones(32), candidate)
    assert not found.helps
    assert found.high == math.inf


@pytest.mark.parametrize(
    ("baseline", "candidates"),
    [(torch.zeros(4, 2), torch.zeros(4, 1)), (torch.zeros(4), torch.zeros(4)), (torch.zeros(4), torch.zeros(5, 1))],
)
def test_shapes_that_do_not_fit_are_errors(baseline, candidates):
    with pytest.raises(BatchError, match="one row per sample"):
        compare_losses(baseline, candidates)


@pytest.mark.parametrize("options", [{"confidence": 95}, {"resamples": 0}])
def test_wrong_options_are_errors(options):
    with pytest.raises(OptionError):
        compare_losses(torch.rand(9), torch.rand(9, 1), **options)
