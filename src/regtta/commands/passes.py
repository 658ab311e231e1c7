"""Passes over target data, and what is counted on the way."""

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
    """One pass of ``adapt``: each step with the batch it was made on.

    No label reaches the adapter, but for a method that says that it learns from them. ``watch`` is shown the
    inputs of each batch before the step; ``adapt`` takes the place of the adapter's.
    """
    adapt = adapt or adapter.adapt
    supervised = adapter.method.takes_targets
    for index, batch in enumerate(_told(data, progress)):
        with model_errors_explained(index, batch.inputs, data.advice):
            if watch is not None:
                watch(batch.inputs)
            step = adapt(batch.inputs, batch.targets if supervised else None)
        yield step, batch


def predicting(adapter: Adapter, data: Data, progress: Progress | None) -> Iterator[tuple[Tensor, LabelledBatch]]:
    """One pass of ``predict``: predictions with the batch they were made on."""
    for index, batch in enumerate(_told(data, progress)):
        with model_errors_explained(index, batch.inputs, data.advice):
            predictions = adapter.predict(batch.inputs)
        yield predictions, batch


@contextmanager
def model_errors_explained(index: int, inputs: Tensor, advice: str) -> Iterator[None]:
    """Whatever the model raises on batch ``index`` becomes one line that names the shape it was given."""
    shape = tuple(inputs.shape)
    with explaining(lambda: f"The model cannot take batch {index}, of shape {shape}", advice):
        yield


class Tally:
    """Counts batches and predictions, and scores these next to the unadapted model's.

    Args:
        baseline: predicts as the unadapted model does; ``None`` where there are no labels to score by.
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
        """Count a batch that was adapted to."""
        verdict = step.diagnostics.verdict
        self.visited += len(step.predictions)
        self.excluded += len(step.excluded_rows)
        if verdict.learned:
            self.learned += 1
        else:
            self.refused[verdict.reason] += 1

    def answered(self, predictions: Tensor, batch: LabelledBatch) -> None:
        """Count and score predictions that are an answer to the user."""
        self.predicted += len(predictions)
        self.not_finite += int((~torch.isfinite(predictions)).sum())
        if self._baseline is not None and batch.targets is not None:
            # Only what the data lacks is left out: predictions that go wrong on their own count.
            whole = _finite_rows(batch.inputs) & _finite_rows(batch.targets)
            self.unscored += int((~whole).sum())
            unadapted = self._baseline.predict(batch.inputs)
            self._after.update(predictions.cpu()[whole], batch.targets.cpu()[whole])
            self._before.update(unadapted.cpu()[whole], batch.targets.cpu()[whole])

    def scores(self) -> tuple[Scores, Scores] | None:
        """Of the unadapted model and of the predictions; none without a row to score."""
        if self._baseline is None or self.predicted == self.unscored:
            return None
        return self._before.compute(), self._after.compute()


def _finite_rows(values: Tensor) -> Tensor:
    """(B,) on the CPU, true where nothing of a sample is NaN or infinite."""
    finite: Tensor = torch.isfinite(values).cpu()
    return finite.flatten(1).all(dim=1) if finite.ndim > 1 else finite


def _told(data: Data, progress: Progress | None) -> Iterator[LabelledBatch]:
    seen = 0
    for batch in data.batches():
        yield batch
        seen += len(batch.inputs)
        if progress is not None:
            progress(seen, data.rows)
