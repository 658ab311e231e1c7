"""Tables of numbers in CSV or Parquet files."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regtta.cli.data.formats import TableFormat
from regtta.cli.data.labelled_batches import ALL_BATCHES, BatchShard, LabelledBatch
from regtta.errors import BatchError, MismatchError, OptionError
from regtta.options import did_you_mean, list_names

if TYPE_CHECKING:
    from pandas import DataFrame

_CHUNK_ROWS = 8192

logger = logging.getLogger(__name__)


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
                yield to_float64(frame, self.path, seen, "Exclude it with --columns, or convert it to numbers.")
            seen += len(frame)


def open_table(
    path: Path,
    kind: TableFormat,
    *,
    columns: Sequence[str],
    targets: Sequence[str],
    batch_size: int,
    dtype: torch.dtype,
    source_columns: Sequence[str] = (),
) -> Table:
    """Open the table in ``path``; by default all columns except the targets are inputs.

    Args:
        path: path of the file.
        kind: reader of its format.
        columns: input columns that the user names; empty for all except the targets.
        targets: label columns.
        batch_size: rows per batch.
        dtype: data type of the inputs.
        source_columns: input columns of the source statistics, which are used in their order; empty if unknown.
    """
    header = kind.header(path)
    for name in (*columns, *targets):
        check_column(name, header.columns, path)
    duplicates = sorted({n for n in (*columns, *targets) if (*columns, *targets).count(n) > 1})
    if duplicates:
        raise OptionError(f"Column {duplicates[0]!r} is named twice in --columns and --target. Name it once.")
    if source_columns:
        _check_chosen_columns(columns, targets, source_columns)
        _check_present_columns(path, header.columns, source_columns)
        if not columns:
            _warn_unused_columns(path, header.columns, (*source_columns, *targets))
    chosen = tuple(source_columns or columns) or tuple(name for name in header.columns if name not in targets)
    if not chosen:
        raise BatchError(f"{path} has no column left for inputs: it holds {list_names(header.columns)}.")
    return Table(path, kind, chosen, tuple(targets), batch_size, dtype, header.rows)


def _check_chosen_columns(columns: Sequence[str], targets: Sequence[str], source_columns: Sequence[str]) -> None:
    """Raise if --columns names other columns than the source statistics, or --target one of theirs."""
    missing = [name for name in source_columns if columns and name not in columns]
    extra = [name for name in columns if name not in source_columns]
    if missing or extra:
        differences = [f"lacks {list_names(missing)}"] if missing else []
        differences += [f"adds {list_names(extra)}"] if extra else []
        raise OptionError(
            f"{_describe_columns(source_columns)} --columns {' and '.join(differences)}. Leave --columns out, or "
            "collect statistics for these columns."
        )
    label = next((name for name in targets if name in source_columns), None)
    if label is not None:
        raise OptionError(
            f"{_describe_columns(source_columns)} --target names one of them, {label!r}. Name another column, or "
            f"collect the statistics with --target {label}."
        )


def _check_present_columns(path: Path, present: Sequence[str], source_columns: Sequence[str]) -> None:
    """Raise if the table lacks columns of the source statistics."""
    known = set(present)
    missing = [name for name in source_columns if name not in known]
    if missing:
        raise MismatchError(
            f"{_describe_columns(source_columns)} {path} lacks {list_names(missing)}; it has {list_names(present)}. "
            "Add or rename columns."
        )


def _describe_columns(names: Sequence[str]) -> str:
    return f"The statistics are of {len(names)} input columns: {list_names(names)}."


def _warn_unused_columns(path: Path, present: Sequence[str], used: Sequence[str]) -> None:
    known = set(used)
    unused = [name for name in present if name not in known]
    if unused:
        logger.warning(
            "%s has columns that the statistics do not name as inputs; they are not used: %s.", path, list_names(unused)
        )


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


def to_float64(frame: "DataFrame", path: Path, rows_before: int, advice: str) -> NDArray[np.float64]:
    """Return a float64 array ``(rows, columns)``, with NaN for empty cells, or raise BatchError for other values."""
    import pandas as pd

    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            unread = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            where = int(unread.to_numpy().argmax())
            raise BatchError(
                f"Column {name!r} of {path} is not numeric: row {rows_before + where + 1} holds "
                f"{str(column.iloc[where])!r}. {advice}"
            )
    # A copy, as the memory of pandas is read-only and tensors must be writable.
    return frame.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def check_column(name: str, columns: Sequence[str], path: Path) -> None:
    """Raise an OptionError unless ``name`` is one of the columns of the file."""
    if name not in columns:
        hint = did_you_mean(name, columns)
        raise OptionError(f"{path} has no column {name!r}; it has {list_names(columns)}.{hint}")
