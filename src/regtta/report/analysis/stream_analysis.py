"""Record of a stream: losses, displacement, alignment and running scores batch by batch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regtta.adapter import Adapter
from regtta.errors import BatchError, OptionError
from regtta.metrics import RegressionMetrics
from regtta.models import BatchReader, Inputs, InputSelection
from regtta.report.analysis.base import AnalysisResult, Array, to_numpy
from regtta.types import Callback, Step


@dataclass(frozen=True, eq=False)
class StreamRecord(AnalysisResult):
    """Quantities of each of the S batches of a stream; NaN if a quantity is undefined for a batch.

    Attributes:
        method: name of the method.
        sizes: number of samples in each batch, (S,).
        loss: loss before the update, (S,).
        gradient_norm: gradient norm of that loss, (S,).
        displacement: ``‖θ − θ₀‖₂ / ‖θ₀‖₂`` after the step, (S,).
        learned: True if the batch updated the model, (S,).
        reasons: reason why a batch was rejected, (S,); empty if it was not.
        shift: mean of the batch along the leading source directions, ``mean(z̃_d) / √λ_d``, (S, k), in source standard
            deviations. The features are computed in eval mode before the step, like those of the source.
        spread: ratio of the batch's standard deviation to the source's, (S, k); 1 if they agree.
        unpredicted: number of samples with a non-finite prediction, (S,).
        online_r2: R² of all finite, labelled online predictions so far, (S,).
    """

    method: str
    sizes: NDArray[np.int64]
    loss: Array
    gradient_norm: Array
    displacement: Array
    learned: NDArray[np.bool_]
    reasons: tuple[str, ...]
    shift: Array
    spread: Array
    unpredicted: NDArray[np.int64]
    online_r2: Array


def record_stream(
    adapter: Adapter,
    batches: Iterable[object],
    targets: Iterable[Tensor] | None = None,
    *,
    directions: int = 5,
    inputs: InputSelection | None = None,
) -> StreamRecord:
    """Adapt over ``batches`` and record every step.

    Labels are used to score the predictions. They are passed to the adapter only if its method takes targets.

    Args:
        adapter: the adapter, updated by every batch.
        batches: target batches ``x``, ``(x, ...)`` or dicts.
        targets: labels, one tensor per batch.
        directions: number of leading source directions to record, at most the rank; 0 records none. Recording them
            costs one more forward pass per batch.
        inputs: how a batch becomes the arguments of the model, as for :class:`regtta.Adapter`.

    Example:
        >>> import regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)).eval()
        >>> source = regtta.collect(model, torch.randn(100, 3).split(20))
        >>> record = record_stream(regtta.Adapter(model, regtta.SSA(k=2), source), torch.randn(60, 3).split(20))
        >>> record.loss.shape, record.shift.shape, record.learned
        ((3,), (3, 3), array([ True,  True,  True]))
    """
    recorder, read = StreamRecorder(directions=directions), BatchReader(adapter.model, inputs)
    for batch, labels in _pair_batches(batches, targets):
        x = read(batch)
        recorder.labels = labels
        recorder.before_step(adapter, x)
        recorder.on_step(adapter, adapter.adapt(x, labels if adapter.method.takes_targets else None))
    return recorder.record()


class StreamRecorder(Callback):
    """Callback that records every step of a stream.

    Args:
        directions: number of leading source directions to record, at most the rank; 0 records none.

    Attributes:
        labels: labels of the next batch, to score its predictions; ``None`` for no score. They never reach the adapter.
    """

    def __init__(self, *, directions: int = 5) -> None:
        if directions < 0:
            raise OptionError(f"Expected directions to be at least 0, found {directions!r}.")
        self._directions = directions
        self._method = ""
        self.labels: Tensor | None = None
        self._online = _OnlineScore()
        self._steps: list[Step] = []
        self._sizes: list[int] = []
        self._moments: list[Tensor] = []

    def before_step(self, adapter: Adapter, inputs: Inputs) -> None:
        """Record shift and spread of a batch ``(B, ...)`` under the current model."""
        self._method = adapter.method.name
        self._sizes.append(len(inputs))
        source = adapter.source
        count = 0 if source is None else min(self._directions, source.rank)
        if source is None or count == 0 or len(inputs) == 0:
            self._moments.append(torch.full((2, count), torch.nan))
            return
        subspace = source.top(count)
        unit = subspace.project(adapter.features(inputs).cpu().double()) / subspace.variances.sqrt()
        # The standard deviation of a single sample is undefined, not an error.
        spread = unit.std(dim=0) if len(unit) > 1 else torch.full_like(unit[0], torch.nan)
        self._moments.append(torch.stack([unit.mean(dim=0), spread]))

    def on_step(self, adapter: Adapter, step: Step) -> None:  # noqa: ARG002 - the step holds all it needs
        """Record a step, and score its predictions if there are labels."""
        # Predictions are scored here and dropped to bound the memory of a long stream.
        self._online.update(step.predictions, self.labels)
        self.labels = None
        self._steps.append(replace(step, predictions=step.predictions.new_empty(0)))

    def record(self) -> StreamRecord:
        """Return the record of all steps so far."""
        if not self._steps:
            raise BatchError(
                "The stream gave no batches. Pass one that yields batches; an exhausted iterator is empty."
            )
        moments = to_numpy(torch.stack(self._moments))
        return _record(self._method, self._steps, np.array(self._sizes), moments, self._online)


class _OnlineScore:
    """Running R² of the finite predictions. A non-finite one would make all later scores NaN, so it is only counted."""

    def __init__(self) -> None:
        self.unpredicted: list[int] = []
        self.r2: list[float] = []
        self._metrics = RegressionMetrics()
        self._scored = False

    def update(self, predictions: Tensor, labels: Tensor | None) -> None:
        """Add a batch, with labels or without."""
        finite = predictions.unsqueeze(-1).flatten(1).isfinite().all(dim=1).cpu()
        self.unpredicted.append(int((~finite).sum()))
        if labels is not None:
            finite &= labels.unsqueeze(-1).flatten(1).isfinite().all(dim=1).cpu()
        if labels is not None and bool(finite.any()):
            self._metrics.update(predictions.cpu()[finite], labels.cpu()[finite])
            self._scored = True
        self.r2.append(self._metrics.compute().r2 if self._scored else float("nan"))


def _pair_batches(
    batches: Iterable[object], targets: Iterable[Tensor] | None
) -> Iterator[tuple[object, Tensor | None]]:
    """Yield each batch with its labels; raise an error if one of the two ends before the other."""
    if targets is None:
        for batch in batches:
            yield batch, None
        return
    end = object()
    for batch, labels in zip_longest(batches, targets, fillvalue=end):
        if batch is end or not isinstance(labels, Tensor):
            raise BatchError(
                "Expected one tensor of targets for each batch, found fewer of one than of the other. Take both from "
                "the same pass over the data."
            )
        yield batch, labels


def _record(
    method: str, steps: list[Step], sizes: NDArray[np.int64], moments: Array, online: _OnlineScore
) -> StreamRecord:
    diagnostics = [step.diagnostics for step in steps]
    return StreamRecord(
        method=method,
        sizes=sizes,
        loss=_to_array([one.loss for one in diagnostics]),
        gradient_norm=_to_array([one.gradient_norm for one in diagnostics]),
        displacement=np.array([one.displacement for one in diagnostics]),
        learned=np.array([one.verdict.learned for one in diagnostics]),
        reasons=tuple(one.verdict.reason for one in diagnostics),
        shift=moments[:, 0],
        spread=moments[:, 1],
        unpredicted=np.array(online.unpredicted),
        online_r2=np.array(online.r2),
    )


def _to_array(values: list[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class RunningScores(AnalysisResult):
    """R² in equal slices of one kind of stream.

    Attributes:
        kind: kind of the stream.
        lines: R² of each slice by method, each (slices,); NaN if there is no score.
    """

    kind: str
    lines: Mapping[str, Array]
