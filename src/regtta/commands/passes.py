"""Passes over the target data, and the counts and scores accumulated in them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.commands.data.batches import Data, LabelledBatch
from regtta.commands.explaining import explaining
from regtta.metrics import RegressionMetrics, Scores
from regtta.steps import Step

Progress = Callable[[int, int | None], None]


def adapting(
    adapter: Adapter,
    data: Data,
    progress: Progress | None,
    *,
    watch: Callable[[Tensor], None] | None = None,
    adapt: Callable[[Tensor, Tensor | None], Step] | None = None,
) -> Iterator[tuple[Step, LabelledBatch]]:
    """Adapt to each batch of ``data`` and yield the step with its batch.

    Labels are passed to the adapter only if its method learns from them.

    Args:
        adapter: the adapter.
        data: target data.
        progress: callback ``(samples_seen, total)``.
        watch: callback with the inputs of each batch before its step.
        adapt: called instead of ``adapter.adapt``.
    """
    adapt = adapt or adapter.adapt
    supervised = adapter.method.takes_targets
    for index, batch in enumerate(_reporting(data, progress)):
        with model_errors_explained(index, batch.inputs, data.advice):
            if watch is not None:
                watch(batch.inputs)
            step = adapt(batch.inputs, batch.targets if supervised else None)
        yield step, batch


def predicting(adapter: Adapter, data: Data, progress: Progress | None) -> Iterator[tuple[Tensor, LabelledBatch]]:
    """Predict each batch of ``data`` without adapting and yield the predictions with their batch."""
    for index, batch in enumerate(_reporting(data, progress)):
        with model_errors_explained(index, batch.inputs, data.advice):
            predictions = adapter.predict(batch.inputs)
        yield predictions, batch


@contextmanager
def model_errors_explained(index: int, inputs: Tensor, advice: str) -> Iterator[None]:
    """Convert exceptions of the model on batch ``index`` into a one-line ModelError with the shape of the inputs."""
    shape = tuple(inputs.shape)
    with explaining(lambda: f"The model cannot take batch {index}, of shape {shape}", advice):
        yield


class Tally:
    """Counts of batches and predictions, and scores of the predictions and of the unadapted model.

    Args:
        baseline: adapter of the unadapted model; ``None`` without labels, which disables the scores.
    """

    def __init__(self, baseline: Adapter | None) -> None:
        self._baseline = baseline
        self._before, self._after = RegressionMetrics(), RegressionMetrics()
        self.learned = 0
        self.refused: Counter[str] = Counter()
        self.visited = 0
        self.excluded = 0
        self.predicted = 0
        self.not_finite = 0
        self.unscored = 0

    def stepped(self, step: Step) -> None:
        """Count an adaptation step."""
        verdict = step.diagnostics.verdict
        self.visited += len(step.predictions)
        self.excluded += len(step.excluded_rows)
        if verdict.learned:
            self.learned += 1
        else:
            self.refused[verdict.reason] += 1

    def answered(self, predictions: Tensor, batch: LabelledBatch) -> None:
        """Count and score the predictions of a batch."""
        self.predicted += len(predictions)
        self.not_finite += int((~torch.isfinite(predictions)).sum())
        if self._baseline is not None and batch.targets is not None:
            # Rows with missing data are excluded; non-finite predictions on complete rows count.
            whole = _finite_rows(batch.inputs) & _finite_rows(batch.targets)
            self.unscored += int((~whole).sum())
            unadapted = self._baseline.predict(batch.inputs)
            self._after.update(predictions.cpu()[whole], batch.targets.cpu()[whole])
            self._before.update(unadapted.cpu()[whole], batch.targets.cpu()[whole])

    def scores(self) -> tuple[Scores, Scores] | None:
        """Return the scores of the unadapted model and of the predictions; ``None`` without scored rows."""
        if self._baseline is None or self.predicted == self.unscored:
            return None
        return self._before.compute(), self._after.compute()


def _finite_rows(values: Tensor) -> Tensor:
    """Return a mask ``(B,)`` on the CPU of the rows without NaN or infinite values."""
    finite: Tensor = torch.isfinite(values).cpu()
    return finite.flatten(1).all(dim=1) if finite.ndim > 1 else finite


def _reporting(data: Data, progress: Progress | None) -> Iterator[LabelledBatch]:
    seen = 0
    for batch in data.batches():
        yield batch
        seen += len(batch.inputs)
        if progress is not None:
            progress(seen, data.rows)
