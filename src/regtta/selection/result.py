"""Result of :func:`regtta.select`: scores of the candidates, the recommendation and its reason."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.methods import Method
from regtta.models import Inputs, OutputSelection, model_device, run_model
from regtta.persistence import to_dict
from regtta.selection.output_correction import CorrectedModel, CorrectionKind, OutputCorrection, correct_head
from regtta.selection.paired_comparison import PairedComparison
from regtta.selection.scoring import CandidateScore


@dataclass(frozen=True)
class FittedCorrection:
    """Correction of offset and scale that was fitted to the recommended candidate.

    Attributes:
        kind: ``"offset"`` or ``"affine"``.
        values: the correction.
        comparison: comparison of leave-one-out corrected predictions with uncorrected ones.
    """

    kind: CorrectionKind
    values: OutputCorrection
    comparison: PairedComparison

    @property
    def helps(self) -> bool:
        """True if the correction is shown to help, and therefore applied."""
        return self.comparison.helps

    def to_dict(self) -> dict[str, object]:
        """Return JSON-compatible values."""
        numbers = {name: _finite(value) for name, value in asdict(self.comparison).items()}
        values = {"offset": list(self.values.offset), "scale": list(self.values.scale)}
        return {"kind": self.kind, **values, **numbers, "applied": self.helps}


@dataclass(frozen=True)
class Deployment:
    """Objects that a selection hands out: the model of the recommended candidate after the stream, and new adapters.

    Attributes:
        adapter: adapter of the recommended candidate, at the end of the stream.
        make_adapter: function that creates a new adapter of a method, with the options of the selection.
        inputs: inputs of the labelled samples.
        output: selection of the prediction from what the model returns.
    """

    adapter: Adapter
    make_adapter: Callable[[Method], Adapter]
    inputs: Inputs
    output: OutputSelection | None


@dataclass(frozen=True)
class Selection:
    """Result of :func:`regtta.select`.

    Attributes:
        rows: one :class:`CandidateScore` per candidate, the unadapted model first.
        methods: method of each candidate, by name.
        recommended: name of the recommended candidate.
        reason: one sentence.
        labels: number of labelled samples.
        stream: number of unlabelled samples that the candidates adapted to.
        loss: loss of the comparison.
        confidence: simultaneous coverage of the intervals.
        correction: correction of offset and scale, if one was requested; it is applied only if it ``helps``.
        skipped: default candidates that do not fit the model, with the reason.
    """

    rows: tuple[CandidateScore, ...]
    methods: Mapping[str, Method]
    recommended: str
    reason: str
    labels: int
    stream: int
    loss: str
    confidence: float
    correction: FittedCorrection | None
    skipped: Mapping[str, str]
    deployment: Deployment = field(repr=False)

    @property
    def method(self) -> Method:
        """Method of the recommended candidate."""
        return self.methods[self.recommended]

    def adapter(self) -> Adapter:
        """Return a new adapter of the recommended method, at the start of a stream."""
        return self.deployment.make_adapter(self.method)

    def correct(self, predictions: Tensor) -> Tensor:
        """Return predictions ``(B,)`` or ``(B, O)`` with offset and scale corrected, if that is shown to help."""
        if self.correction is None or not self.correction.helps:
            return predictions
        return self.correction.values.apply(predictions)

    def export(self) -> nn.Module:
        """Return the recommended model as adapted to the stream, in eval mode, with the correction if it helps.

        The correction becomes part of the head's weight and bias if that gives the corrected predictions of the
        labelled samples; otherwise the model is wrapped in a module that returns corrected predictions.
        """
        model = self.deployment.adapter.export().eval()
        if self.correction is None or not self.correction.helps:
            return model
        head, output = self.deployment.adapter.head, self.deployment.output
        changed = None if head is None else correct_head(model, head, self.correction.values)
        if changed is not None:
            wanted, found = self.correct(self._predict(model)), self._predict(changed)
            if torch.allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(wanted.std())):
                return changed.eval()
        return CorrectedModel(model, self.correction.values, output).eval()

    @torch.no_grad()
    def _predict(self, model: nn.Module) -> Tensor:
        """Return the predictions of a model on the labelled samples."""
        return run_model(model, self.deployment.inputs.to(model_device(model)), output=self.deployment.output)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-compatible values, with ``None`` for numbers that are not finite."""
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "labels": self.labels,
            "stream": self.stream,
            "loss": self.loss,
            "confidence": self.confidence,
            "candidates": [{**row.to_dict(), "method": to_dict(self.methods[row.name])} for row in self.rows],
            "correction": None if self.correction is None else self.correction.to_dict(),
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        width = max(len("candidate"), *(len(row.name) for row in self.rows))
        lines = [f"{'candidate':<{width}}      RMSE       MAE       R²     gain  interval            p"]
        for row in self.rows:
            interval = "" if row is self.rows[0] else f"{row.low:7.3f} to {row.high:7.3f}  {row.p_value:6.4f}"
            mark = "  ← recommended" if row.name == self.recommended else ""
            numbers = f"{row.rmse:10.4g}{row.mae:10.4g}{row.r2:9.4f}{row.gain:9.4f}"
            lines.append(f"{row.name:<{width}}{numbers}  {interval}{mark}".rstrip())
        return "\n".join([*lines, self.reason, *self._notes()])

    def _notes(self) -> list[str]:
        notes = [f"{name} was left out: {why}" for name, why in self.skipped.items()]
        return notes if self.correction is None else [describe_correction(self.correction), *notes]


def describe_correction(correction: FittedCorrection) -> str:
    """Return one sentence on a correction: its values, its gain, and whether it is applied."""
    values = ", ".join(
        f"{offset:.4g} + {scale:.4g}·prediction"
        for offset, scale in zip(correction.values.offset, correction.values.scale, strict=True)
    )
    found = correction.comparison
    applied = "applied" if correction.helps else "not applied, as it is not shown to help"
    return (
        f"The correction {values} has a leave-one-out gain of {found.gain:.3g} ({found.low:.3g} to {found.high:.3g}): "
        f"{applied}."
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
