"""Signals of a monitor after each batch, which are aggregates and disclose no single sample."""

import math
from dataclasses import dataclass
from functools import cached_property

from regtta.statistics import EwmaMoments

SCALARS = (
    "samples",
    "learned",
    "loss",
    "displacement",
    "count",
    "batches_since_helped",
    "risk",
    "shift_source",
    "shift_adapted",
    "beyond_chance",
    "reweighting",
    "steadiness",
    "alignment_gain",
    "disagreement",
)
"""Names of the scalar signals."""


@dataclass(frozen=True)
class FeatureShift:
    """Shift of recent features relative to the source, per direction of the source subspace.

    Attributes:
        means: ``(k,)`` whitened means, in source standard deviations; 0 on the source.
        deviations: ``(k,)`` whitened standard deviations; 1 on the source.

    Example:
        >>> shift = FeatureShift(means=(3.0, 0.0), deviations=(1.0, 5.0))
        >>> shift.sizes, shift.misalignment
        ((3.0, 4.0), 25.0)
    """

    means: tuple[float, ...]
    deviations: tuple[float, ...]

    @classmethod
    def of(cls, recent: EwmaMoments) -> "FeatureShift":
        """Return the shift of whitened moments."""
        return cls(tuple(recent.mean.tolist()), tuple(recent.variance.sqrt().tolist()))

    @cached_property
    def sizes(self) -> tuple[float, ...]:
        """Size of the shift per direction ``(k,)``, ``√(m_d² + (s_d − 1)²)``."""
        return tuple(math.hypot(mean, spread - 1) for mean, spread in zip(self.means, self.deviations, strict=True))

    @property
    def misalignment(self) -> float:
        """Misalignment ``Σ_d m_d² + (s_d − 1)²``, as in :class:`regtta.guards.HealthCheck`."""
        return sum(size * size for size in self.sizes)  # ``**`` raises an OverflowError where a product is infinite

    @property
    def size(self) -> float:
        """Root mean square of the sizes."""
        return math.sqrt(self.misalignment / len(self.sizes))


@dataclass(frozen=True)
class OutputShift:
    """Recent outputs of a model relative to the source.

    Attributes:
        means: ``(O,)`` shift of the mean, in source standard deviations.
        deviations: ``(O,)`` ratios of the standard deviation to that of the source.
    """

    means: tuple[float, ...]
    deviations: tuple[float, ...]


@dataclass(frozen=True)
class Evidence:
    """Statistics of recent samples, for the source model and for the model that made the predictions.

    Attributes:
        source: feature shift of the source model.
        adapted: feature shift of the model that made the predictions.
        beyond_chance: ratio of the source model's shift to the critical value; above 1, the shift is significant.
        reweighting: smallest χ² divergence of a label shift that could explain the shift.
        steadiness: ratio of the variation of outputs between blocks to the critical value; above 1, the stream is not
            stationary. ``None`` until there are four blocks.
        outputs_source: outputs of the source model.
        outputs_adapted: predictions.
        disagreement: root mean square difference between the predictions and those of the source model, in source
            standard deviations.
    """

    source: FeatureShift
    adapted: FeatureShift
    beyond_chance: float
    reweighting: float
    steadiness: float | None
    outputs_source: OutputShift
    outputs_adapted: OutputShift
    disagreement: float

    @property
    def alignment_gain(self) -> float:
        """Misalignment of the source model minus that of the adapted model; above 0, adaptation reduced it."""
        return self.source.misalignment - self.adapted.misalignment


@dataclass(frozen=True)
class Signals:
    """Signals after one batch.

    Attributes:
        index: index of the batch, from 0.
        samples: number of samples in the batch.
        learned: True if the batch was learned from.
        reason: reason for a rejection.
        returned: ``"good"`` or ``"source"`` if the model was rolled back.
        loss: loss of the batch, if the method has one.
        displacement: relative displacement of the parameters, ``‖θ − θ₀‖ / ‖θ₀‖``.
        count: effective number of samples behind the evidence.
        evidence: statistics of recent samples; ``None`` while there are too few samples.
        batches_since_helped: number of batches since adaptation last reduced the misalignment, or since the start of
            the stream.
        risk: estimated probability that recent predictions are worse than those of the source model; 0 while both
            models are the same, ``None`` without evidence.
    """

    index: int
    samples: int
    learned: bool
    reason: str
    returned: str
    loss: float | None
    displacement: float
    count: float
    evidence: Evidence | None
    batches_since_helped: int
    risk: float | None

    def scalars(self) -> dict[str, float]:
        """Return the finite scalar signals, by name."""
        found: dict[str, float | None] = {
            "samples": self.samples,
            "learned": float(self.learned),
            "loss": self.loss,
            "displacement": self.displacement,
            "count": self.count,
            "batches_since_helped": self.batches_since_helped,
            "risk": self.risk,
        }
        if self.evidence is not None:
            evidence = self.evidence
            found |= {
                "shift_source": evidence.source.size,
                "shift_adapted": evidence.adapted.size,
                "beyond_chance": evidence.beyond_chance,
                "reweighting": evidence.reweighting,
                "steadiness": evidence.steadiness,
                "alignment_gain": evidence.alignment_gain,
                "disagreement": evidence.disagreement,
            }
        return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}

    def series(self) -> dict[str, tuple[float, ...]]:
        """Return the signals with one value per dimension or output, by name."""
        if self.evidence is None:
            return {}
        evidence = self.evidence
        return {
            "shift_source_by_dimension": evidence.source.sizes,
            "shift_adapted_by_dimension": evidence.adapted.sizes,
            "output_mean_source": evidence.outputs_source.means,
            "output_mean_adapted": evidence.outputs_adapted.means,
            "output_deviation_source": evidence.outputs_source.deviations,
            "output_deviation_adapted": evidence.outputs_adapted.deviations,
        }

    def to_dict(self) -> dict[str, object]:
        """Return all signals as values that JSON can represent."""
        texts = {"index": self.index, "reason": self.reason, "returned": self.returned}
        series = {name: [_finite(value) for value in values] for name, values in self.series().items()}
        return {**texts, **self.scalars(), "samples": self.samples, "learned": self.learned, **series}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
