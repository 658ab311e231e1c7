"""What the monitor says of a stream after each batch: aggregates alone, nothing of a single sample."""

import math
from dataclasses import dataclass
from functools import cached_property

from regtta.recent import RecentMoments

NUMBERS = (
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
"""Names of the signals that are one number each."""


@dataclass(frozen=True)
class Shift:
    """How far recent features are from the source's, by direction of the source's subspace.

    Attributes:
        means: (k,) whitened means, in source standard deviations; 0 on the source.
        deviations: (k,) whitened standard deviations; 1 on the source.

    Example:
        >>> shift = Shift(means=(3.0, 0.0), deviations=(1.0, 5.0))
        >>> shift.sizes, shift.misalignment
        ((3.0, 4.0), 25.0)
    """

    means: tuple[float, ...]
    deviations: tuple[float, ...]

    @classmethod
    def of(cls, recent: RecentMoments) -> "Shift":
        """The shift that whitened moments show."""
        return cls(tuple(recent.mean.tolist()), tuple(recent.variance.sqrt().tolist()))

    @cached_property
    def sizes(self) -> tuple[float, ...]:
        """(k,) ``√(m_d² + (s_d − 1)²)``."""
        return tuple(math.hypot(mean, spread - 1) for mean, spread in zip(self.means, self.deviations, strict=True))

    @property
    def misalignment(self) -> float:
        """``Σ_d m_d² + (s_d − 1)²``, as in :class:`regtta.guards.HealthCheck`."""
        return sum(size * size for size in self.sizes)  # ``**`` raises where a product is just infinite

    @property
    def size(self) -> float:
        """Root mean square of the sizes."""
        return math.sqrt(self.misalignment / len(self.sizes))


@dataclass(frozen=True)
class Outputs:
    """Recent outputs of a model against the source's, by output.

    Attributes:
        means: (O,) how far the mean is from the source's, in standard deviations of the source's outputs.
        deviations: (O,) standard deviations over the source's.
    """

    means: tuple[float, ...]
    deviations: tuple[float, ...]


@dataclass(frozen=True)
class Evidence:
    """Everything that is measured over recent samples, with the model that answered and with the source model.

    Attributes:
        source: shift of the features as the source model sees them.
        adapted: as the model saw them that gave the predictions.
        beyond_chance: the source model's shift over what chance explains; above 1 is a shift.
        reweighting: the least χ² divergence of a change in the mix of labels that could explain it.
        steadiness: how much outputs move from block to block over what chance explains; above 1 the stream is
            not steady. ``None`` until there are four blocks.
        outputs_source: outputs of the source model.
        outputs_adapted: the predictions.
        disagreement: root mean square of predictions less the source model's, in source standard deviations.
    """

    source: Shift
    adapted: Shift
    beyond_chance: float
    reweighting: float
    steadiness: float | None
    outputs_source: Outputs
    outputs_adapted: Outputs
    disagreement: float

    @property
    def alignment_gain(self) -> float:
        """Misalignment of the source model less that of the adapted one: above 0, adapting brought features nearer."""
        return self.source.misalignment - self.adapted.misalignment


@dataclass(frozen=True)
class Signals:
    """What is known after a batch.

    Attributes:
        index: of the batch, from 0.
        samples: in the batch.
        learned: whether it was learned from.
        reason: why not.
        returned: ``"good"`` or ``"source"`` where the model was taken back.
        loss: of the batch, where the method has one.
        displacement: of the parameters, ``‖θ − θ₀‖ / ‖θ₀‖``.
        count: samples of equal weight behind the evidence.
        evidence: ``None`` while there are too few samples.
        batches_since_helped: since the features were last nearer to the source's than without adapting; 0 if they
            are now, counted from the beginning if they never were.
        risk: estimated probability that the predictions of late are worse than the source model's; 0 while they
            are the same, ``None`` without evidence.
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

    def numbers(self) -> dict[str, float]:
        """The finite single numbers among the signals, by name, for whatever draws or scrapes them."""
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
            told = self.evidence
            found |= {
                "shift_source": told.source.size,
                "shift_adapted": told.adapted.size,
                "beyond_chance": told.beyond_chance,
                "reweighting": told.reweighting,
                "steadiness": told.steadiness,
                "alignment_gain": told.alignment_gain,
                "disagreement": told.disagreement,
            }
        return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}

    def series(self) -> dict[str, tuple[float, ...]]:
        """The signals that have one number a dimension or an output, by name."""
        if self.evidence is None:
            return {}
        told = self.evidence
        return {
            "shift_source_by_dimension": told.source.sizes,
            "shift_adapted_by_dimension": told.adapted.sizes,
            "output_mean_source": told.outputs_source.means,
            "output_mean_adapted": told.outputs_adapted.means,
            "output_deviation_source": told.outputs_source.deviations,
            "output_deviation_adapted": told.outputs_adapted.deviations,
        }

    def plain(self) -> dict[str, object]:
        """All of it in values that JSON has."""
        texts = {"index": self.index, "reason": self.reason, "returned": self.returned}
        series = {name: [_finite(value) for value in values] for name, values in self.series().items()}
        return {**texts, **self.numbers(), "samples": self.samples, "learned": self.learned, **series}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
