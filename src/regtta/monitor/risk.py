"""Label-free estimate of the risk that adapted predictions are worse than those of the source model.

The estimate is a logistic regression on five signals. Aligning features does harm where the labels of a batch are not
representative of the source: in a non-stationary stream, under label shift, or where there is little shift to remove.
It is indicated by predictions that vary less than those of the source model.
"""

import math
from collections.abc import Iterable

from regtta.monitor.signals import Evidence

FEATURES = ("steadiness", "shift_source", "output_mean_source", "output_deviation_source", "output_deviation_adapted")

# Fitted by benchmarks/monitor_risk.py on simulated shifts of source data, with half of the source models;
# docs/monitoring.md has the evaluation on the other half. No target data was used.
CONSTANT = -1.98
COEFFICIENTS = (0.28, -2.21, 2.09, 0.43, -3.26)


def features_of(evidence: Evidence) -> tuple[float, ...]:
    """Return the five features of the logistic regression, each clipped to the range in which it was fitted.

    They are the ``log`` of the stationarity statistic (1 while unknown), the ``log`` of the shift of the source model,
    the absolute shift of the source model's mean output, and the ``log`` of both models' output standard deviations
    relative to the source. Several outputs are averaged.
    """
    steady = 1.0 if evidence.steadiness is None else evidence.steadiness
    return (
        _log(steady, 0.1, 1000.0),
        _log(evidence.source.size, 0.01, 100.0),
        _mean(min(abs(mean), 3.0) if math.isfinite(mean) else 3.0 for mean in evidence.outputs_source.means),
        _mean(_log(spread, 0.05, 20.0) for spread in evidence.outputs_source.deviations),
        _mean(_log(spread, 0.05, 20.0) for spread in evidence.outputs_adapted.deviations),
    )


def risk_of_harm(evidence: Evidence) -> float:
    """Return the estimated probability that recent predictions have a larger squared error than the source model's."""
    terms = zip(COEFFICIENTS, features_of(evidence), strict=True)
    return 1 / (1 + math.exp(-(CONSTANT + math.fsum(weight * value for weight, value in terms))))


def _log(value: float, least: float, most: float) -> float:
    """Return the ``log`` of a value clipped to ``[least, most]``; NaN counts as ``most``."""
    return math.log(most if math.isnan(value) else min(max(value, least), most))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
