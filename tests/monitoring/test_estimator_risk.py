import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import regtta
from helpers import monitored_stream, small_models
from helpers.attaching import attach
from regtta.monitoring import FeatureShift, OutputShift
from regtta.monitoring.estimator import COEFFICIENTS, INTERCEPT, RISK_FEATURES, risk_features, risk_of_harm

EVIDENCE = monitored_stream.evidence(
    source=FeatureShift((0.6, 0.0), (1.0, 1.8)),
    steadiness=5.0,
    outputs_source=OutputShift((-0.4, 0.2), (0.5, 2.0)),
    outputs_adapted=OutputShift((0.0, 0.0), (0.25, 1.0)),
)


def test_risk_in_closed_form():
    size = math.sqrt((0.6**2 + 0.8**2) / 2)
    expected = [math.log(5), math.log(size), 0.3, 0.0, (math.log(0.25) + 0) / 2]
    np.testing.assert_allclose(risk_features(EVIDENCE), expected, atol=1e-12)
    logit = INTERCEPT + np.dot(COEFFICIENTS, expected)
    assert risk_of_harm(EVIDENCE) == pytest.approx(1 / (1 + np.exp(-logit)))
    assert len(RISK_FEATURES) == len(COEFFICIENTS) == len(expected)


@pytest.mark.parametrize("odd", [0.0, math.inf, math.nan, 1e300])
def test_risk_is_a_probability_for_extreme_evidence(odd):
    evidence = monitored_stream.evidence(
        source=FeatureShift((odd,), (odd,)),
        steadiness=odd,
        outputs_source=OutputShift((odd,), (odd,)),
        outputs_adapted=OutputShift((odd,), (odd,)),
    )
    assert 0 < risk_of_harm(evidence) < 1
    assert risk_features(monitored_stream.evidence(steadiness=None))[0] == 0.0


def risk_on(stream):
    monitor = attach(regtta.Monitor(), monitored_stream.adapter(regtta.BNAdapt()))
    list(monitor.adapter.run(stream))
    return monitor.signals.risk


def test_a_sorted_stream_is_riskier_than_a_shifted_one():
    x = small_models.table(32 * 24, seed=3)
    with torch.no_grad():
        order = small_models.mlp()(x).squeeze(1).argsort()
    shifted = risk_on((x * 1.5 + 1.5).split(32))
    assert risk_on(x[order].split(32)) > 0.7
    assert shifted < 0.5


def test_risk_generalises_to_a_source_that_it_was_not_fitted_on():
    """One table of the benchmark that fits the coefficients, with another seed and one method per stream."""
    path = Path(__file__).parents[2] / "benchmarks" / "monitor_risk.py"
    spec = importlib.util.spec_from_file_location("monitor_risk", path)
    sys.modules["monitor_risk"] = benchmark = importlib.util.module_from_spec(spec)  # required by dataclasses
    try:
        spec.loader.exec_module(benchmark)
    finally:
        del sys.modules["monitor_risk"]
    benchmark.METHODS_A_STREAM = 1
    found = list(benchmark.observations(benchmark.table_source(99)))
    worse = np.array([item.worse for item in found])
    score = INTERCEPT + np.array([item.features for item in found]) @ COEFFICIENTS
    assert len(found) == 96
    assert 0.3 < worse.mean() < 0.9
    assert roc_auc_score(worse, score) > 0.75
