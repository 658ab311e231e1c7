"""Tables of numbers in CSV or Parquet files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regtta.cli.data.formats import TableFormat
from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, LabelledBatch
from regtta.errors import BatchError, OptionError
from regtta.options import did_you_mean, list_names

if TYPE_CHECKING:
    from pandas import DataFrame

_CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Table:
    """Batches of the rows of a file, of which one chunk at a time is held in memory.

    Attributes:
        path: path of the file.
        format: reader of its format.
        columns: input columns, in the order of the model's inputs.
        target_names: label columns.
        batch_size: rows per batch.
        dtype: data type of the inputs; labels are float64.
        rows: number of rows; ``None`` if unknown.
    """

    path: Path
    format: TableFormat
    columns: tuple[str, ...]
    target_names: tuple[str, ...]
    batch_size: int
    dtype: torch.dtype = torch.float32
    rows: int | None = None
    reiterable: ClassVar[bool] = True

    @property
    def advice(self) -> str:
        """Advice that names the input columns."""
        return (
            f"{len(self.columns)} columns were used as inputs: {list_names(self.columns)}. Select others with "
            "--columns, and name the label with --target to exclude it."
        )

    def batches(self, shard: BatchShard = ALL_BATCHES) -> Iterator[LabelledBatch]:
        """Iterate over inputs ``(B, columns)`` and labels ``(B,)`` or ``(B, O)``; every process reads all rows."""
        width = len(self.columns)
        for values in shard.select(rebatch(self._chunks(), self.batch_size)):
            targets = torch.from_numpy(values[:, width:])
            yield LabelledBatch(
                torch.from_numpy(values[:, :width]).to(self.dtype).contiguous(),
                None if not self.target_names else targets.squeeze(1),
            )

    def _chunks(self) -> Iterator[NDArray[np.float64]]:
        seen = 0
        for frame in self.format.frames(self.path, (*self.columns, *self.target_names), _CHUNK_ROWS):
            if len(frame):  # the data type of an empty column is undefined
                yield _to_float64(frame, self.path, seen)
            seen += len(frame)


def open_table(
    path: Path,
    kind: TableFormat,
    *,
    columns: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    dtype: torch.dtype,
) -> Table:
    """Open the table in ``path``; by default all columns except the targets are inputs."""
    header = kind.header(path)
    for name in (*columns, *targets):
        _check_column(name, header.columns, path)
    duplicates = sorted({n for n in (*columns, *targets) if (*columns, *targets).count(n) > 1})
    if duplicates:
        raise OptionError(f"Column {duplicates[0]!r} is named twice in --columns and --target. Name it once.")
    chosen = tuple(columns) or tuple(name for name in header.columns if name not in targets)
    if not chosen:
        raise BatchError(f"{path} has no column left for inputs: it holds {list_names(header.columns)}.")
    return Table(path, kind, chosen, tuple(targets), batch_size, dtype, header.rows)


def rebatch(chunks: Iterator[NDArray[np.float64]], size: int) -> Iterator[NDArray[np.float64]]:
    """Regroup the rows of ``chunks`` into pieces of ``size`` rows; the last one may be shorter.

    Example:
        >>> [len(piece) for piece in rebatch(iter([np.zeros((3, 1)), np.zeros((4, 1))]), 2)]
        [2, 2, 2, 1]
    """
    rest: NDArray[np.float64] | None = None
    for chunk in chunks:
        whole = chunk if rest is None else np.concatenate([rest, chunk])
        full = len(whole) - len(whole) % size
        for start in range(0, full, size):
            yield whole[start : start + size]
        rest = whole[full:]
    if rest is not None and len(rest):
        yield rest


def _to_float64(frame: "DataFrame", path: Path, rows_before: int) -> NDArray[np.float64]:
    """Return a float64 array ``(rows, columns)``, with NaN for empty cells, or raise BatchError for other values."""
    import pandas as pd

    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            unread = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            where = int(unread.to_numpy().argmax())
            raise BatchError(
                f"Column {name!r} of {path} is not numeric: row {rows_before + where + 1} holds "
                f"{str(column.iloc[where])!r}. Exclude it with --columns, or convert it to numbers."
            )
    # A copy, as the memory of pandas is read-only and tensors must be writable.
    return frame.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def _check_column(name: str, columns: Sequence[str], path: Path) -> None:
    if name not in columns:
        hint = did_you_mean(name, columns)
        raise OptionError(f"{path} has no column {name!r}; it has {list_names(columns)}.{hint}")
