import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve

from regtta.errors import OptionError
from regtta_bench.label_shift.label_shift_findings import RidgeLogisticRegression
from regtta_bench.label_shift.roc import compute_roc, compute_roc_curve


def drawn(seed, positives=80, negatives=120, gap=1.0, digits=6):
    draw = np.random.default_rng(seed)
    return draw.normal(gap, 1, positives).round(digits), draw.normal(0, 1, negatives).round(digits)


def joined(above, below):
    return np.r_[np.ones(len(above)), np.zeros(len(below))], np.r_[above, below]


@pytest.mark.parametrize("digits", [6, 0])  # the second has many ties
@pytest.mark.parametrize("seed", range(3))
def test_the_auc_agrees_with_scikit_learn(seed, digits):
    above, below = drawn(seed, digits=digits)
    assert compute_roc(above, below).auc == pytest.approx(roc_auc_score(*joined(above, below)), abs=1e-12)


def test_the_curve_agrees_with_scikit_learn():
    above, below = drawn(4, digits=0)
    false, true, _ = roc_curve(*joined(above, below), drop_intermediate=False)
    ours = compute_roc_curve(above, below)
    np.testing.assert_allclose(ours[0], false)
    np.testing.assert_allclose(ours[1], true)


def test_the_interval_agrees_with_the_bootstrap():
    above, below = drawn(5, 150, 200)
    found = compute_roc(above, below)
    draw = np.random.default_rng(0)
    areas = [compute_roc(draw.choice(above, len(above)), draw.choice(below, len(below))).auc for _ in range(2000)]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(areas, [0.025, 0.975])), abs=0.01)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    truth = 0.7602499389  # Φ(1/√2), two unit Gaussians one apart
    covered = [(r := compute_roc(*drawn(seed, 40, 60))).low <= truth <= r.high for seed in range(400)]
    assert 0.91 < np.mean(covered) < 0.98


def test_true_positive_rate_at_five_percent_false_positives():
    below = np.arange(100.0)
    found = compute_roc(np.array([93.5, 94.5, 95.5, 200.0]), below)
    assert found.tpr_at_5_percent == 0.75  # the limit is 94: five of a hundred lie above it
    assert (found.positives, found.negatives) == (4, 100)


def test_perfect_useless_and_inverted_signals():
    assert compute_roc(np.array([2.0, 3.0]), np.array([0.0, 1.0])).auc == 1
    assert compute_roc(np.array([0.0, 1.0]), np.array([2.0, 3.0])).auc == 0
    same = compute_roc(np.ones(5), np.ones(5))
    assert (same.auc, same.tpr_at_5_percent) == (0.5, 0.0)


def test_too_few_cases_are_rejected():
    with pytest.raises(OptionError, match="two of each class, found 1 positives and 3 negatives"):
        compute_roc(np.zeros(1), np.zeros(3))


def test_the_logistic_regression_agrees_with_scikit_learn():
    draw = np.random.default_rng(1)
    values = draw.normal(size=(300, 4)) * [1, 10, 0.1, 3]
    truth = (values[:, 0] + 0.1 * values[:, 1] + draw.normal(size=300) > 0).astype(float)
    ours = RidgeLogisticRegression(values, truth)(values)
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    # Ours has the ridge on the intercept too: give scikit-learn it as a column. C is 1 / (N · ridge).
    inputs = np.column_stack([np.ones(300), scaled])
    model = LogisticRegression(C=1 / 3.0, fit_intercept=False, tol=1e-10, max_iter=1000).fit(inputs, truth)
    np.testing.assert_allclose(ours, model.decision_function(inputs), atol=1e-4)


def test_a_regression_on_separable_classes_stays_finite():
    values = np.arange(20.0)[:, None]
    odds = RidgeLogisticRegression(values, (values[:, 0] >= 10).astype(float))(values)
    assert np.isfinite(odds).all()
    assert ((odds > 0) == (values[:, 0] >= 10)).all()
