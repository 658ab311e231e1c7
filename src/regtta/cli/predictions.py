"""Passes over target data with their counts and scores, and the table of predictions."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.cli.data.labelled_batches import Data, LabelledBatch
from regtta.cli.user_code import convert_user_errors
from regtta.errors import MismatchError, ModelError, OptionError
from regtta.metrics import RegressionMetrics, Scores
from regtta.models import Inputs, input_tensors
from regtta.persistence import atomic_write
from regtta.types import Step

if TYPE_CHECKING:
    from pandas import DataFrame

    from regtta.report.recorder import RunRecorder

Progress = Callable[[int, int | None], None]


def adapt_batches(
    adapter: Adapter,
    data: Data,
    progress: Progress | None,
    *,
    recorder: "RunRecorder | None" = None,
    done: Sequence[Step] = (),
) -> Iterator[tuple[Step, LabelledBatch]]:
    """Adapt to each batch of ``data`` and yield the step with its batch.

    Labels are passed to the adapter only if its method learns from them.

    Args:
        adapter: the adapter.
        data: target data.
        progress: callback ``(samples_seen, total)``.
        recorder: callback of the adapter that scores its predictions by the labels.
        done: steps of the first batches from a checkpoint, which are yielded instead of adapting again.
    """
    supervised, count = adapter.method.takes_targets, 0
    for index, batch in enumerate(_reporting(data, progress)):
        count += 1
        if index < len(done):
            yield _recorded(done[index], batch), batch
            continue
        if recorder is not None:
            recorder.labels = batch.targets
        with model_errors_explained(index, batch.inputs, data.advice):
            step = adapter.adapt(batch.inputs, batch.targets if supervised else None)
        yield step, batch
    if count < len(done):
        raise MismatchError(
            f"The data has {count} batches, but the checkpoint covers {len(done)}. Pass the data that the stream was "
            "started with."
        )


def _recorded(step: Step, batch: LabelledBatch) -> Step:
    if len(step.predictions) != len(batch.inputs):
        raise MismatchError(
            f"Batch {step.index} has {len(batch.inputs)} rows, but the checkpoint holds {len(step.predictions)} "
            "predictions of it. Pass the data that the stream was started with."
        )
    return step


def predict_batches(adapter: Adapter, data: Data, progress: Progress | None) -> Iterator[tuple[Tensor, LabelledBatch]]:
    """Predict each batch of ``data`` without adapting and yield the predictions with their batch."""
    for index, batch in enumerate(_reporting(data, progress)):
        with model_errors_explained(index, batch.inputs, data.advice):
            predictions = adapter.predict(batch.inputs)
        yield predictions, batch


@contextmanager
def model_errors_explained(index: int, inputs: Inputs, advice: str) -> Iterator[None]:
    """Convert exceptions of the model on batch ``index`` into a one-line ModelError with the shape of the inputs."""
    shape = tuple(inputs.shape)
    with convert_user_errors(lambda: f"The model cannot take batch {index}, of shape {shape}", advice):
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

    def add_step(self, step: Step) -> None:
        """Count an adaptation step."""
        verdict = step.diagnostics.verdict
        self.visited += len(step.predictions)
        self.excluded += len(step.excluded_rows)
        if verdict.learned:
            self.learned += 1
        else:
            self.refused[verdict.reason] += 1

    def add_predictions(self, predictions: Tensor, batch: LabelledBatch) -> None:
        """Count and score the predictions of a batch."""
        self.predicted += len(predictions)
        self.not_finite += int((~torch.isfinite(predictions)).sum())
        if self._baseline is not None and batch.targets is not None:
            # Rows with missing data are excluded; non-finite predictions on complete rows count.
            values = (*input_tensors(batch.inputs), batch.targets)
            whole = torch.stack([_finite_rows(tensor) for tensor in values]).all(dim=0)
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


PREDICTION_SUFFIXES = (".csv", ".parquet")
_ROWS_AT_ONCE = 65_536


class PredictionSink(Protocol):
    """Interface of objects that accept predictions batch by batch."""

    def write(self, predictions: Tensor, targets: Tensor | None) -> None:
        """Add a batch: predictions ``(B,)`` or ``(B, O)``, and labels if available."""


class _Appender(Protocol):
    def append(self, frame: "DataFrame") -> None: ...


class PredictionWriter:
    """Buffered writer of one row per sample: ``prediction`` (or ``prediction_0``, …) and the labels by name.

    Args:
        appender: receives the rows.
        target_names: names of the labels.
        names: names of all samples in the order of their predictions, written as the first column ``name``.
    """

    def __init__(self, appender: _Appender, target_names: tuple[str, ...], names: Sequence[str] | None = None) -> None:
        self._appender = appender
        self._target_names = target_names
        self._names = names
        self._written = 0
        self._waiting: list[DataFrame] = []
        self._rows = 0

    def write(self, predictions: Tensor, targets: Tensor | None) -> None:
        """Add a batch."""
        end = self._written + len(predictions)
        names = None if self._names is None else self._names[self._written : end]
        self._written = end
        self._waiting.append(prediction_frame(predictions, targets, self._target_names, names))
        self._rows += len(predictions)
        if self._rows >= _ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        import pandas as pd

        if self._waiting:
            self._appender.append(pd.concat(self._waiting, ignore_index=True))
        self._waiting, self._rows = [], 0


class _Reordered:
    def __init__(self) -> None:
        self.predictions: list[Tensor] = []
        self.targets: list[Tensor] = []

    def write(self, predictions: Tensor, targets: Tensor | None) -> None:
        self.predictions.append(predictions.detach().cpu())
        if targets is not None:
            self.targets.append(targets)


@contextmanager
def reordered(sink: PredictionSink, order: Tensor) -> Iterator[PredictionSink]:
    """Yield a sink that collects predictions of shuffled rows and passes them on in their original order at the end.

    Args:
        sink: receives the reordered predictions.
        order: indices ``(N,)`` of the rows in the order of their predictions.
    """
    kept = _Reordered()
    yield kept
    if kept.predictions:
        back = order.argsort()
        targets = torch.cat(kept.targets)[back] if kept.targets else None
        sink.write(torch.cat(kept.predictions)[back], targets)


@contextmanager
def prediction_file(
    path: Path, target_names: tuple[str, ...], names: Sequence[str] | None = None
) -> Iterator[PredictionWriter]:
    """Yield a writer to ``path``; the file appears once the block has succeeded."""
    with atomic_write(path) as draft, ExitStack() as stack:
        appender: _Appender
        if path.suffix == ".parquet":
            appender = _Parquet(draft, stack)
        else:
            appender = _Csv(stack.enter_context(draft.open("w", encoding="utf-8", newline="")))
        writer = PredictionWriter(appender, target_names, names)
        yield writer
        writer.flush()


def prediction_frame(
    predictions: Tensor,
    targets: Tensor | None,
    target_names: tuple[str, ...],
    sample_names: Sequence[str] | None = None,
) -> "DataFrame":
    """Return the names of the samples, if they have any, the predictions and the labels of a batch as a data frame.

    Example:
        >>> prediction_frame(torch.zeros(1, 2), torch.ones(1), ("age",)).columns.tolist()
        ['prediction_0', 'prediction_1', 'age']
    """
    import pandas as pd

    values = _columns(predictions)
    names = _names("prediction", values.shape[1])
    data: dict[str, Any] = {} if sample_names is None else {"name": list(sample_names)}
    data |= {name: values[:, i].numpy() for i, name in enumerate(names)}
    if targets is not None:
        labels = _columns(targets)
        own = target_names if len(target_names) == labels.shape[1] else _names(target_names[0], labels.shape[1])
        clash = next((name for name in own if name in data), None)
        if clash is not None:
            raise OptionError(
                f"The label {clash!r} has the name of a column of the predictions. Rename it in the data."
            )
        data |= {name: labels[:, i].numpy() for i, name in enumerate(own)}
    return pd.DataFrame(data)


class _Csv:
    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._begun = False

    def append(self, frame: "DataFrame") -> None:
        # Write NaN explicitly, to distinguish NaN predictions from empty cells.
        frame.to_csv(self._file, index=False, header=not self._begun, na_rep="nan", lineterminator="\n")
        self._begun = True


class _Parquet:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._writer: Any = None

    def append(self, frame: "DataFrame") -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(frame, preserve_index=False)
        if self._writer is None:
            self._writer = self._stack.enter_context(pq.ParquetWriter(self._path, table.schema))
        self._writer.write_table(table)


def _columns(values: Tensor) -> Tensor:
    """Return values as ``(B, O)`` on the CPU, in a data type that NumPy supports."""
    values = values.detach().cpu()
    if not 1 <= values.ndim <= 2:
        raise ModelError(
            f"Expected predictions of shape (B,) or (B, O), found {tuple(values.shape)}. Flatten them in "
            "the model's forward."
        )
    if values.dtype in (torch.bfloat16, torch.float16):
        values = values.float()
    return values.unsqueeze(1) if values.ndim == 1 else values


def _names(name: str, count: int) -> tuple[str, ...]:
    return (name,) if count == 1 else tuple(f"{name}_{i}" for i in range(count))
