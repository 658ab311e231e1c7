"""Estimation of label-free signals from the batches of a stream, including the risk that adapting harms."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regtta.models import Forward
from regtta.monitoring.signals import Evidence, FeatureShift, OutputShift
from regtta.persistence import require_bool, require_mapping, require_tensor
from regtta.statistics import (
    EwmaMoments,
    SourceStatistics,
    Whitening,
    min_reweighting_divergence,
    shift_test,
    stationarity_statistic,
)
from regtta.types import StepView

RISK_FEATURES = (
    "steadiness",
    "shift_source",
    "output_mean_source",
    "output_deviation_source",
    "output_deviation_adapted",
)

# Fitted by benchmarks/monitor_risk.py on simulated shifts of source data, with half of the source models;
# docs/monitoring.md has the evaluation on the other half. No target data was used.
INTERCEPT = -1.98
COEFFICIENTS = (0.28, -2.21, 2.09, 0.43, -3.26)


def risk_features(evidence: Evidence) -> tuple[float, ...]:
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
    terms = zip(COEFFICIENTS, risk_features(evidence), strict=True)
    return 1 / (1 + math.exp(-(INTERCEPT + math.fsum(weight * value for weight, value in terms))))


def _log(value: float, low: float, high: float) -> float:
    """Return the ``log`` of a value clipped to ``[low, high]``; NaN counts as ``high``."""
    return math.log(high if math.isnan(value) else min(max(value, low), high))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


BLOCK = 32  # samples per block of the stationarity test
_COLUMNS = 5  # quantities tracked per output


class SignalEstimator:
    """Estimator of shift signals from recent moments of both models' features and outputs.

    Args:
        source: source statistics.
        head: head of the source model.
        memory: time constant of the moments, in samples.
        least: number of samples required before evidence is returned; protects single samples from disclosure.
        level: significance level per batch.
        tolerance: largest shift to ignore, in source standard deviations.
    """

    def __init__(
        self, source: SourceStatistics, head: nn.Linear, *, memory: int, least: int, level: float, tolerance: float
    ) -> None:
        self.memory, self.least, self.level, self.tolerance = memory, least, level, tolerance
        self.source_count = source.count
        self.whitening = Whitening.from_statistics(source, head)
        self.head = head
        mean, variance = source.output_moments(head.weight)
        self.source_mean = mean if head.bias is None else mean + head.bias.detach().cpu().double()
        self.source_deviation = variance.clamp_min(1e-300).sqrt()
        self.reset()

    def reset(self) -> None:
        """Reset to an empty state."""
        self.at_source = EwmaMoments(self.memory)
        self.at_adapted = EwmaMoments(self.memory)
        self.outputs = EwmaMoments(self.memory, products=False)
        self.seen = torch.empty(0, self.head.out_features, dtype=torch.float64)
        self.moved = False

    @property
    def count(self) -> float:
        """Effective number of samples behind the evidence."""
        return min(self.at_source.count, self.at_adapted.count, self.outputs.count)

    def update(self, view: StepView) -> None:
        """Update the moments with a batch."""
        device = view.source.features.device
        if device != self.whitening.mean.device:  # the adapter was moved
            self.whitening, self.head = self.whitening.to(device), self.head.to(device)
        before, self.moved = self.moved, view.answered is not view.source
        if view.step.diagnostics.verdict.returned or (before and not self.moved):
            # The moments of the adapted model are obsolete after a rollback.
            self.at_adapted.reset()
            self.outputs.reset()
        self.at_source.update(self.whitening(view.source.flat_features))
        if self.moved:
            self.at_adapted.update(self.whitening(view.answered.flat_features))
        else:
            self.at_adapted.load_state_dict(self.at_source.state_dict())
        linear = self._linear(view.source)
        self._update_outputs(view, linear)
        finite = linear[linear.isfinite().all(dim=1)]
        self.seen = torch.cat([self.seen, finite])[-max(self.memory, 4 * len(finite)) :]

    def evidence(self) -> Evidence | None:
        """Return the current evidence, or ``None`` while there are too few samples."""
        if self.count < self.least:
            return None
        test = shift_test(self.at_source, source_count=self.source_count, level=self.level, tolerance=self.tolerance)
        enough = len(self.seen) >= min(self.memory, 4 * BLOCK) and len(self.seen) >= 2 * BLOCK
        source, adapted, disagreement = self._outputs()
        return Evidence(
            source=FeatureShift.of(self.at_source),
            adapted=FeatureShift.of(self.at_adapted),
            beyond_chance=max(test.mean, test.spread),
            reweighting=min_reweighting_divergence(self.at_source),
            steadiness=stationarity_statistic(self.seen, BLOCK, self.level) if enough else None,
            outputs_source=source,
            outputs_adapted=adapted,
            disagreement=disagreement,
        )

    def _linear(self, forward: Forward) -> Tensor:
        """Return the outputs ``(N, O)`` of the source head for the features of a forward pass."""
        with torch.no_grad():
            return _float64(self.head(forward.flat_features.detach()))

    def _update_outputs(self, view: StepView, linear: Tensor) -> None:
        source, answered = (_rows(forward) for forward in (view.source, view.answered))
        if source.shape != linear.shape:  # the model transforms the outputs of its head
            source, answered = linear, self._linear(view.answered)
        # The variance of the last column yields the covariance of the first two.
        self.outputs.update(torch.cat([linear, source, answered, answered - source, linear + source], dim=1))

    def _outputs(self) -> tuple[OutputShift, OutputShift, float]:
        """Return standardized outputs of both models and their disagreement.

        A model may rescale the outputs of its head. Mean and standard deviation of the source are known at the head
        only; the regression ``slope`` of the model's outputs on those of the head converts them.
        """
        recent = self.outputs
        mean, variance, square = (
            torch.stack(values.cpu().chunk(_COLUMNS)) for values in (recent.mean, recent.variance, recent.square)
        )
        covariance = (variance[4] - variance[0] - variance[1]) / 2
        slope = torch.where(variance[0] > 0, covariance / variance[0].clamp_min(1e-300), 1.0)
        unit = slope * self.source_deviation
        at_source = (mean[0] - self.source_mean) / self.source_deviation
        disagreement = (square[3] / unit**2).mean().sqrt()
        spreads = variance[1:3].sqrt() / unit.abs()
        return (
            OutputShift(tuple(at_source.tolist()), tuple(spreads[0].tolist())),
            OutputShift(tuple((at_source + mean[3] / unit).tolist()), tuple(spreads[1].tolist())),
            float(disagreement),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        return {
            "source": self.at_source.state_dict(),
            "adapted": self.at_adapted.state_dict(),
            "outputs": self.outputs.state_dict(),
            "seen": self.seen.clone(),
            "moved": self.moved,
        }

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns."""
        found = require_mapping(path, state, ("source", "adapted", "outputs", "seen", "moved"))
        wide, outputs = self.whitening.dimensions, self.head.out_features
        self.at_source.validate_state(found["source"], f"{path}/source", wide)
        self.at_adapted.validate_state(found["adapted"], f"{path}/adapted", wide)
        self.outputs.validate_state(found["outputs"], f"{path}/outputs", _COLUMNS * outputs)
        require_tensor(f"{path}/seen", found["seen"], (None, outputs), torch.float64)
        require_bool(f"{path}/moved", found["moved"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`."""
        self.at_source.load_state_dict(state["source"])
        self.at_adapted.load_state_dict(state["adapted"])
        self.outputs.load_state_dict(state["outputs"])
        self.seen = state["seen"].clone()
        self.moved = state["moved"]


def _rows(forward: Forward) -> Tensor:
    """Return outputs ``(B, O)``; one row for each step ``(B*T, O)`` of a sequence-to-sequence model."""
    outputs = _float64(forward.outputs)
    if forward.features.ndim > 2:
        steps = forward.features.shape[:-1].numel()
        return outputs.reshape(steps, -1) if outputs.numel() == steps else outputs.flatten(0, -2)
    return outputs.flatten(1) if outputs.ndim > 1 else outputs[:, None]


def _float64(values: Tensor) -> Tensor:
    """Return values in float64 on the CPU, since not all devices support float64."""
    return values.detach().cpu().double()
