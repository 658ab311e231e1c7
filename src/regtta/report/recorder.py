"""Record of one adaptation run, written as JSON for ``regtta report``."""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import DegenerateDataWarning, bootstrap
from torch import Tensor, nn

import regtta
from regtta.adapter import Adapter
from regtta.errors import BatchError
from regtta.models import Inputs, describe_sample, input_tensors
from regtta.options import check_positive_int
from regtta.persistence import atomic_write, device_name, software_versions, to_dict
from regtta.report.analysis import (
    AnalysisResult,
    StreamRecorder,
    feature_histograms,
    gradient_norms,
    normality_report,
    output_report,
    prediction_report,
    reconstruction,
    shift_report,
    subspace_report,
    to_json_value,
)
from regtta.statistics import LabelShiftEvidence, label_shift_evidence
from regtta.types import Callback, Step


class Reservoir:
    """Reservoir sample of up to ``most`` rows, each row seen being kept with the same probability, in stream order.

    Args:
        most: maximum number of rows to keep.
        seed: seed of the sampling.

    Example:
        >>> reservoir = Reservoir(3, seed=0)
        >>> for batch in torch.arange(100).split(10):
        ...     reservoir.update(batch)
        >>> [len(column) for column in reservoir.rows()]
        [3]
    """

    def __init__(self, most: int, *, seed: int) -> None:
        check_positive_int("most", most)
        self._most = most
        self._generator = torch.Generator().manual_seed(seed)
        self._draws = torch.empty(0, dtype=torch.float64)
        self._columns: list[Tensor] = []
        self.seen = 0

    def update(self, *columns: Tensor) -> None:
        """Update the sample with a batch: paired tensors (B, ...), the same number of them in every call."""
        count = len(columns[0])
        if any(len(column) != count for column in columns) or len(columns) != len(self._columns or columns):
            raise BatchError("Expected as many columns as before, all with the same rows.")
        self.seen += count
        draws = torch.cat([self._draws, torch.rand(count, generator=self._generator, dtype=torch.float64)])
        # The rows with the smallest draws are kept, so a row that is dropped once can never return.
        kept = draws.argsort(stable=True)[: self._most].sort().values
        before = len(self._draws)
        self._draws = draws[kept]
        old = self._columns or [column[:0].detach().cpu() for column in columns]
        self._columns = [
            torch.cat([mine[kept[kept < before]], new.detach().cpu()[kept[kept >= before] - before]])
            for mine, new in zip(old, columns, strict=True)
        ]

    def rows(self) -> list[Tensor]:
        """Return the kept rows, one tensor per column."""
        return self._columns


BEFORE, AFTER = "before", "after"
MOST_ROWS = 2000
MOST_BYTES = 256 * 2**20
RESAMPLES = 2000
_AT_ONCE = 256  # rows per forward pass


class RunRecorder(Callback):
    """Callback that collects the data of a run's report in bounded memory.

    Args:
        model: the unadapted model.
        seed: seed of the sample of rows that is analysed in detail.

    Attributes:
        labels: labels of the next batch, for scores only; ``None`` for none. They never reach the adapter.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0) -> None:
        self._model = model
        self._stream = StreamRecorder()
        self._seed = seed
        self._sample: Reservoir | None = None
        self._labelled = False
        self.labels: Tensor | None = None

    def on_start(self, adapter: Adapter) -> None:
        """Attach to the adapter."""
        self._adapter = adapter

    def before_step(self, adapter: Adapter, inputs: Inputs) -> None:
        """Record the inputs of a batch before its step."""
        self._stream.labels = self.labels
        self._stream.before_step(adapter, inputs)
        self._inputs = inputs

    def on_step(self, adapter: Adapter, step: Step) -> None:
        """Record a step with its inputs and labels."""
        self._stream.on_step(adapter, step)
        inputs, labels, self.labels = self._inputs, self.labels, None
        if len(inputs) == 0:
            return
        tensors = input_tensors(inputs)
        if self._sample is None:
            size = max(1, sum(tensor[:1].numel() * tensor.element_size() for tensor in tensors))
            self._sample = Reservoir(max(2, min(MOST_ROWS, MOST_BYTES // size)), seed=self._seed)
            self._labelled, self._first = labels is not None, inputs[:1]
        if describe_sample(inputs) != describe_sample(self._first):
            return  # sequences of another length
        whole = torch.stack([_rows(tensor).isfinite().all(dim=1) for tensor in tensors]).all(dim=0).cpu()
        columns = [*tensors, _rows(step.predictions), *([] if labels is None else [_rows(labels)])]
        self._sample.update(*(column.cpu()[whole] for column in columns))

    def record(self, about: Mapping[str, object], *, online: bool) -> dict[str, Any]:
        """Return the record as JSON-compatible values.

        Args:
            about: command and results of the run.
            online: True if the predictions were made while adapting, False if by the adapted model. An adapter that
                serves other predictions than the adapted model's is scored by the adapted model at the end.
        """
        content: dict[str, Any] = {"format": ADAPTATION, **about, "environment": self._environment()}
        content["stream"] = self._stream.record().to_dict()
        rows = [] if self._sample is None else self._sample.rows()
        if rows and len(rows[0]) > 1:
            count = len(input_tensors(self._first))
            inputs = rows[0] if isinstance(self._first, Tensor) else self._first.with_tensors(tuple(rows[:count]))
            predictions = self._predictions(inputs)
            content["sample"] = {"rows": len(rows[0]), "seen": self._sample.seen if self._sample else 0}
            content |= self._of_features(inputs, predictions)
            if self._labelled:
                served = online and self._adapter.serve == "adapted"
                answered = rows[count] if served else predictions[AFTER]
                content |= _of_labels(predictions, answered, rows[count + 1])
        return content

    def _environment(self) -> dict[str, object]:
        device = next((p.device for p in self._model.parameters()), torch.device("cpu"))
        return {
            "versions": software_versions(),
            "device": device_name(device),
            "method": {"name": self._adapter.method.name, **to_dict(self._adapter.method)},
        }

    def _unadapted(self, head: str | None = None) -> Adapter:
        return self._predicting(self._model, head)

    def _predicting(self, model: nn.Module, head: str | None = None) -> Adapter:
        output, features = self._adapter.output, self._adapter.pooling
        return Adapter(model, regtta.NoAdaptation(), head=head, output=output, features=features)

    def _predictions(self, inputs: Inputs) -> dict[str, Tensor]:
        unadapted, adapted = self._unadapted(), self._adapter
        if adapted.serve != "adapted":
            adapted = self._predicting(adapted.model)
        return {BEFORE: _over(unadapted.predict, inputs), AFTER: _over(adapted.predict, inputs)}

    def _of_features(self, inputs: Inputs, predictions: dict[str, Tensor]) -> dict[str, object]:
        """Return the analyses that need source statistics; empty without them, incomplete for non-finite features."""
        source, name = self._adapter.source, self._adapter.head
        if source is None or name is None:
            return {}
        unadapted, head = self._unadapted(name), self._adapter.source_head()
        before = _over(unadapted.features, inputs).flatten(0, -2)
        features = {BEFORE: before, AFTER: _over(self._adapter.features, inputs).flatten(0, -2)}
        found: dict[str, object] = {
            "subspace": subspace_report(source, head.weight).to_dict(),
            "gradients": gradient_norms(source).to_dict(),
            "statistics": {"count": source.count, "head": source.head, "fingerprint": source.fingerprint},
        }
        analyses: dict[str, Callable[[], AnalysisResult | LabelShiftEvidence]] = {
            "shift": lambda: shift_report(source, features),
            "label_shift": lambda: label_shift_evidence(source, head, before),
            "outputs": lambda: output_report(source, head, predictions),
            "reconstruction": lambda: reconstruction(source, features),
            "normality": lambda: normality_report(source, before),
            "histograms": lambda: feature_histograms(source, before, seed=self._seed),
        }
        for key, analysis in analyses.items():
            try:
                found[key] = analysis().to_dict()
            except BatchError as error:
                found.setdefault("unmeasured", str(error))
        return found


def _rows(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


def _over(predict: Callable[[Inputs], Tensor], inputs: Inputs) -> Tensor:
    """Return ``predict(inputs)``, computed in chunks to bound memory."""
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(inputs), _AT_ONCE)]
    return torch.cat([predict(inputs[part]).cpu() for part in parts])


def _of_labels(predictions: Mapping[str, Tensor], answers: Tensor, labels: Tensor) -> dict[str, object]:
    """Return the comparison of predictions with labels on the sampled rows, and the gain with its interval."""
    known = labels.isfinite().all(dim=1)
    if int(known.sum()) < 2:
        return {}
    reports = {name: prediction_report(_rows(values)[known], labels[known]) for name, values in predictions.items()}
    truth = reports[BEFORE].labels
    before = (reports[BEFORE].predictions - truth) ** 2
    after = (prediction_report(_rows(answers)[known], labels[known]).predictions - truth) ** 2
    return {
        "predictions": {name: report.to_dict() for name, report in reports.items()},
        "gain": {"rows": len(truth), **gain_interval(before, after, truth)},
    }


def gain_interval(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, *, seed: int = 0
) -> dict[str, float | None]:
    """Return the gain in R² and its 95 % bootstrap interval over samples.

    Args:
        before: squared errors of the unadapted model, ``(N, O)``.
        after: squared errors of the adapted model, ``(N, O)``.
        labels: labels, ``(N, O)``.
        seed: of the bootstrap.
    """

    def gain(rows: np.ndarray) -> float:
        spread = ((labels[rows] - labels[rows].mean(axis=0)) ** 2).sum(axis=0)
        return float(((before[rows] - after[rows]).sum(axis=0) / spread).mean())

    # Rows are resampled whole, so the errors and the labels of a sample stay together.
    rows = np.arange(len(labels))
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # resamples without a finite gain are handled below
        values = {"mean": gain(rows)}
        resampled = bootstrap(
            (rows,),
            gain,
            n_resamples=RESAMPLES,
            vectorized=False,
            confidence_level=0.95,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    finite = np.isfinite(resampled.bootstrap_distribution).all()
    low, high = resampled.confidence_interval if finite else (np.nan, np.nan)
    values |= {"low": float(low), "high": float(high)}
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record atomically; non-finite numbers become null, as JSON cannot represent them."""
    with atomic_write(path) as draft:
        draft.write_text(
            json.dumps(to_json_value(content), allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8"
        )


ADAPTATION = "regtta.adaptation/1"
