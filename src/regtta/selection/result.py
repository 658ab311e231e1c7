"""Result of :func:`regtta.select`: scores of the candidates, the recommendation and its reason."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.methods import Method
from regtta.models import Inputs, OutputSelection, model_device, run_model
from regtta.persistence import to_dict
from regtta.selection.output_correction import CorrectedModel, OutputCorrection, correct_head
from regtta.selection.scoring import CandidateScore


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
        rows: scores of the candidates, the unadapted model first, then those of the corrected candidates.
        methods: method of each candidate, by name.
        recommended: name of the recommended row.
        reason: one sentence.
        labels: number of labelled samples.
        stream: number of unlabelled samples that the candidates adapted to.
        loss: loss of the comparison.
        confidence: simultaneous coverage of the intervals.
        skipped: default candidates that do not fit the model, with the reason.
        deployment: the recommended model as adapted to the stream.
    """

    rows: tuple[CandidateScore, ...]
    methods: Mapping[str, Method]
    recommended: str
    reason: str
    labels: int
    stream: int
    loss: str
    confidence: float
    skipped: Mapping[str, str]
    deployment: Deployment = field(repr=False)

    @property
    def row(self) -> CandidateScore:
        """Scores of the recommended row."""
        return next(row for row in self.rows if row.name == self.recommended)

    @property
    def method(self) -> Method:
        """Method of the recommended candidate."""
        return self.methods[self.row.candidate]

    @property
    def correction(self) -> OutputCorrection | None:
        """Correction of offset and scale that is recommended; None if there is none."""
        return self.row.correction

    def adapter(self) -> Adapter:
        """Return a new adapter of the recommended method, at the start of a stream."""
        return self.deployment.make_adapter(self.method)

    def correct(self, predictions: Tensor) -> Tensor:
        """Return predictions ``(B,)`` or ``(B, O)`` with the recommended correction, unchanged if there is none."""
        return predictions if self.correction is None else self.correction.apply(predictions)

    def export(self) -> nn.Module:
        """Return the recommended model as adapted to the stream, in eval mode, with the recommended correction.

        The correction becomes part of the head's weight and bias if that gives the corrected predictions of the
        labelled samples; otherwise the model is wrapped in a module that returns corrected predictions.
        """
        model = self.deployment.adapter.export().eval()
        if self.correction is None:
            return model
        head, output = self.deployment.adapter.head, self.deployment.output
        changed = None if head is None else correct_head(model, head, self.correction)
        if changed is not None:
            wanted, found = self.correct(self._predict(model)), self._predict(changed)
            if torch.allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(wanted.std())):
                return changed.eval()
        return CorrectedModel(model, self.correction, output).eval()

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
            "candidates": [{**row.to_dict(), "method": to_dict(self.methods[row.candidate])} for row in self.rows],
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        titles = ("candidate", "RMSE", "MAE", "R²", "gain", "interval", "p", "")
        cells = [titles, *(self._cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:-1], widths[1:-1]), row[-1]]).rstrip()
            for row in cells
        ]
        left_out = [f"{name} was left out: {why}" for name, why in self.skipped.items()]
        return "\n".join([*lines, self.reason, *describe_correction(self.correction), *left_out])

    def _cells(self, row: CandidateScore) -> tuple[str, ...]:
        """Return the texts of one line of the table."""
        compared = ("", "", "")
        if row is not self.rows[0]:
            compared = (f"{row.gain:.3f}", f"{row.low:.3f} to {row.high:.3f}", f"{row.p_value:.4f}")
        mark = "← recommended" if row.name == self.recommended else ""
        return (row.name, f"{row.rmse:.4g}", f"{row.mae:.4g}", f"{row.r2:.4f}", *compared, mark)


def describe_correction(correction: OutputCorrection | None) -> list[str]:
    """Return one line for each output of a correction.

    Example:
        >>> describe_correction(OutputCorrection((1.5,), (0.9,)))
        ['corrected prediction = 1.5 + 0.9 · prediction']
    """
    if correction is None:
        return []
    values = list(zip(correction.offset, correction.scale, strict=True))
    return [
        f"corrected prediction{'' if len(values) == 1 else f' {index}'} = {offset:.6g} + {scale:.6g} · prediction"
        for index, (offset, scale) in enumerate(values)
    ]
