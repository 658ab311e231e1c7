"""What happens over a stream: loss, steps taken and refused, and how far each batch is from the source."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regtta.adapter import Adapter
from regtta.batches import inputs_of
from regtta.errors import BatchError, OptionError
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.metrics import RegressionMetrics
from regtta.steps import Step


@dataclass(frozen=True, eq=False)
class StreamRecord(Report):
    """One row a batch of a stream, S in all; NaN where a batch has no such number.

    Attributes:
        method: name of the method.
        sizes: (S,) samples in each batch.
        loss: (S,) before the update.
        gradient_norm: (S,) of that loss.
        displacement: (S,) ``‖θ − θ₀‖₂ / ‖θ₀‖₂`` after the step.
        learned: (S,) whether the batch was learned from.
        reasons: (S,) why not; empty where it was.
        shift: (S, k) ``(mean(z̃_d) − 0) / √λ_d``: the batch's mean along the leading source directions, in the source's
            standard deviations. Features are the model's in eval mode before the step, as the source's were collected.
        spread: (S, k) the batch's standard deviation there over the source's; 1 where they agree.
        unpredicted: (S,) samples whose prediction is not finite.
        online_r2: (S,) R² of all other online predictions so far that have a label.
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
    inputs: str | None = None,
) -> StreamRecord:
    """Adapt over ``batches`` and write down what each step did.

    The labels score the predictions. They reach the adapter only if its method says that it learns from them.

    Args:
        adapter: adapts as ``adapter.adapt`` would, and is at the end of the stream afterwards.
        batches: of the target: ``x``, ``(x, ...)`` or dicts.
        targets: labels, one tensor a batch.
        directions: how many leading source directions to watch, at most the rank; 0 watches none. Watching runs the
            model once more a batch.
        inputs: the key of the input in dict batches.

    Example:
        >>> import regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)).eval()
        >>> source = regtta.collect(model, torch.randn(100, 3).split(20))
        >>> record = record_stream(regtta.Adapter(model, regtta.SSA(k=2), source), torch.randn(60, 3).split(20))
        >>> record.loss.shape, record.shift.shape, record.learned
        ((3,), (3, 3), array([ True,  True,  True]))
    """
    recorder = StreamRecorder(adapter, directions=directions)
    for batch, labels in _pairs(batches, targets):
        x = inputs_of(batch, inputs)
        recorder.watch(x)
        recorder.see(adapter.adapt(x, labels if adapter.method.takes_targets else None), labels)
    return recorder.record()


class StreamRecorder:
    """Writes down a stream that someone else runs: :meth:`watch` before each step, :meth:`see` after it.

    Args:
        adapter: that adapts.
        directions: how many leading source directions to watch, at most the rank; 0 watches none.
    """

    def __init__(self, adapter: Adapter, *, directions: int = 5) -> None:
        if directions < 0:
            raise OptionError(f"Expected directions of at least 0, found {directions!r}.")
        self._adapter = adapter
        source = adapter.source
        self._count = 0 if source is None else min(directions, source.rank)
        self._online = _OnlineScore()
        self._steps: list[Step] = []
        self._sizes: list[int] = []
        self._moments: list[Tensor] = []

    def watch(self, inputs: Tensor) -> None:
        """Take the moments of a batch (B, ...) under the model as it stands: shift and spread, (2, k)."""
        self._sizes.append(len(inputs))
        source = self._adapter.source
        if source is None or self._count == 0 or len(inputs) == 0:
            self._moments.append(torch.full((2, self._count), torch.nan))
            return
        subspace = source.top(self._count)
        unit = subspace.project(self._adapter.features(inputs).cpu().double()) / subspace.variances.sqrt()
        # The deviation of a single sample is unknown, not an error.
        spread = unit.std(dim=0) if len(unit) > 1 else torch.full_like(unit[0], torch.nan)
        self._moments.append(torch.stack([unit.mean(dim=0), spread]))

    def see(self, step: Step, labels: Tensor | None = None) -> None:
        """Take down what a step did; the labels score its predictions."""
        # Predictions are scored here and let go: a long stream has many.
        self._online.see(step.predictions, labels)
        self._steps.append(replace(step, predictions=step.predictions.new_empty(0)))

    def record(self) -> StreamRecord:
        """All that was seen so far."""
        if not self._steps:
            raise BatchError("The stream gave no batches. A used-up iterator is empty.")
        moments = array(torch.stack(self._moments))
        return _record(self._adapter.method.name, self._steps, np.array(self._sizes), moments, self._online)


class _OnlineScore:
    """R² of the predictions so far. One that is not finite would blot out all that follow: they are counted instead."""

    def __init__(self) -> None:
        self.unpredicted: list[int] = []
        self.r2: list[float] = []
        self._metrics = RegressionMetrics()
        self._scored = False

    def see(self, predictions: Tensor, labels: Tensor | None) -> None:
        """Add a batch, with labels or without."""
        finite = predictions.unsqueeze(-1).flatten(1).isfinite().all(dim=1).cpu()
        self.unpredicted.append(int((~finite).sum()))
        if labels is not None:
            finite &= labels.unsqueeze(-1).flatten(1).isfinite().all(dim=1).cpu()
        if labels is not None and bool(finite.any()):
            self._metrics.update(predictions.cpu()[finite], labels.cpu()[finite])
            self._scored = True
        self.r2.append(self._metrics.compute().r2 if self._scored else float("nan"))


def _pairs(batches: Iterable[object], targets: Iterable[Tensor] | None) -> Iterator[tuple[object, Tensor | None]]:
    """Each batch with its labels; an error where one of the two ends before the other."""
    if targets is None:
        for batch in batches:
            yield batch, None
        return
    end = object()
    for batch, labels in zip_longest(batches, targets, fillvalue=end):
        if batch is end or not isinstance(labels, Tensor):
            raise BatchError(
                "Expected one tensor of targets for each batch, found fewer of one than of the other. Give both from "
                "the same pass over the data."
            )
        yield batch, labels


def _record(
    method: str, steps: list[Step], sizes: NDArray[np.int64], moments: Array, online: _OnlineScore
) -> StreamRecord:
    told = [step.diagnostics for step in steps]
    return StreamRecord(
        method=method,
        sizes=sizes,
        loss=_known([one.loss for one in told]),
        gradient_norm=_known([one.gradient_norm for one in told]),
        displacement=np.array([one.displacement for one in told]),
        learned=np.array([one.verdict.learned for one in told]),
        reasons=tuple(one.verdict.reason for one in told),
        shift=moments[:, 0],
        spread=moments[:, 1],
        unpredicted=np.array(online.unpredicted),
        online_r2=np.array(online.r2),
    )


def _known(values: list[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
