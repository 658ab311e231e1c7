"""An estimate, without labels, of the risk that adapted predictions are worse than the source model's.

A logistic score of five signals. Aligning features harms where a batch is not a fair sample of labels like the
source's: in a stream that is not steady, where outputs moved as labels would move them, or where there is little shift
to take away. It shows in predictions that are spread less than the source model's.
"""

import math
from collections.abc import Iterable

from regtta.monitor.signals import Evidence

FEATURES = ("steadiness", "shift_source", "output_mean_source", "output_deviation_source", "output_deviation_adapted")

# Fitted by benchmarks/monitor_risk.py on simulated shifts of source data, on streams of half of its source models;
# docs/monitoring.md says how it did on those of the others. No target set was looked at.
CONSTANT = -1.98
COEFFICIENTS = (0.28, -2.21, 2.09, 0.43, -3.26)


def features_of(evidence: Evidence) -> tuple[float, ...]:
    """(5,) what the score is a sum of, each kept within a range in which it was fitted.

    ``log`` of steadiness (1 while it is not known), of the shift of the source model, and of both models' spreads of
    outputs over the source's; the distance of the source model's mean output from the source's. Several outputs count
    by their mean.
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
    """Probability in (0, 1) that predictions of late had a larger squared error than the source model's."""
    terms = zip(COEFFICIENTS, features_of(evidence), strict=True)
    return 1 / (1 + math.exp(-(CONSTANT + math.fsum(weight * value for weight, value in terms))))


def _log(value: float, least: float, most: float) -> float:
    """``log`` of a value brought into ``[least, most]``; what is no number counts as the most."""
    return math.log(most if math.isnan(value) else min(max(value, least), most))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
