import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from regtta.errors import BatchError
from regtta.metrics import RegressionMetrics


def scored(predictions, targets, size=None):
    metrics = RegressionMetrics()
    for p, t in zip(predictions.split(size or 10**9), targets.split(size or 10**9), strict=True):
        metrics.update(p, t)
    return metrics


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 60), outputs=st.integers(1, 3))
def test_against_scikit_learn_and_scipy_in_batches_of_any_size(seed, size, outputs):
    rng = np.random.default_rng(seed)
    targets = rng.normal(1e3, 2, (50, outputs))
    predictions = targets + rng.normal(0.3, 1, (50, outputs))
    scores = scored(torch.from_numpy(predictions), torch.from_numpy(targets), size).compute()
    assert scores.count == 50
    assert scores.r2 == pytest.approx(r2_score(targets, predictions), rel=1e-7)
    assert scores.rmse == pytest.approx(root_mean_squared_error(targets, predictions), rel=1e-9)
    assert scores.mae == pytest.approx(mean_absolute_error(targets, predictions), rel=1e-9)
    correlations = [pearsonr(targets[:, o], predictions[:, o]).statistic for o in range(outputs)]
    assert scores.pearson == pytest.approx(np.mean(correlations), rel=1e-7)


def test_targets_of_shape_b_and_b_1_are_equivalent():
    p, t = torch.randn(8), torch.randn(8)
    assert scored(p, t).compute() == scored(p.unsqueeze(1), t).compute() == scored(p, t.unsqueeze(1)).compute()


def test_one_sample_at_a_time():
    p, t = torch.randn(9), torch.randn(9)
    assert scored(p, t, 1).compute().count == 9
    assert scored(p, t, 1).compute().r2 == pytest.approx(scored(p, t).compute().r2, rel=1e-9)


def test_merging_equals_scoring_all_samples():
    p, t = torch.randn(20, 2), torch.randn(20, 2)
    left, right = scored(p[:7], t[:7]), scored(p[7:], t[7:])
    left.merge(right)
    left.merge(RegressionMetrics())
    whole, merged = scored(p, t).compute(), left.compute()
    assert merged.count == whole.count
    for name in ("r2", "rmse", "mae", "pearson"):
        assert getattr(merged, name) == pytest.approx(getattr(whole, name), rel=1e-12)
    fresh = RegressionMetrics()
    fresh.merge(scored(p, t))
    assert fresh.compute() == whole


def test_undefined_scores_are_nan():
    constant = scored(torch.randn(5), torch.ones(5)).compute()
    assert math.isnan(constant.r2)
    assert math.isnan(constant.pearson)
    assert constant.rmse > 0
    broken = scored(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0])).compute()
    assert math.isnan(broken.r2)
    assert math.isnan(broken.mae)


def test_scores_to_dict():
    scores = scored(torch.randn(5), torch.ones(5)).compute()
    assert scores.to_dict() == {"r2": None, "rmse": scores.rmse, "mae": scores.mae, "pearson": None, "count": 5}


def test_mismatched_shapes_raise():
    metrics = RegressionMetrics()
    for p, t in [(4, 5), ((4, 2), (4,)), ((4, 2), (4, 3)), ((4, 2, 1), (4, 2, 1))]:
        with pytest.raises(BatchError, match=r"do not fit targets of shape"):
            metrics.update(torch.zeros(p), torch.zeros(t))
    with pytest.raises(BatchError, match="No predictions to score yet"):
        metrics.compute()
    metrics.update(torch.zeros(0), torch.zeros(0))
    with pytest.raises(BatchError, match="No predictions to score yet"):
        metrics.compute()
