"""CSV and Parquet files read as data frames of bounded size, so that memory does not grow with the file."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regtta.errors import BatchError, FileError
from regtta.persistence import BoundedFile, convert_errors

if TYPE_CHECKING:
    from pandas import DataFrame


MAX_COLUMNS = 100_000  # tables of gene expression have some 60,000
MAX_FRAME_CELLS = 2**22  # maximum per frame: 8,192 rows of 512 columns, 32 MiB as float64
# A frame that exceeds these limits has non-numeric cells or unbounded lines.
_MAX_COMMAS, _MAX_FRAME_BYTES = 4 * MAX_FRAME_CELLS, 256 * 2**20


@dataclass(frozen=True)
class TableHeader:
    """Columns of a table and its number of rows; ``rows`` is ``None`` if unknown without reading the file."""

    columns: tuple[str, ...]
    rows: int | None = None


@dataclass(frozen=True)
class TableFormat:
    """Reader of a file format: ``header(path)`` and ``frames(path, columns, max_rows)``."""

    header: Callable[[Path], TableHeader]
    frames: Callable[[Path, Sequence[str], int], Iterator["DataFrame"]]


def csv_header(path: Path) -> TableHeader:
    """Return the column names of a CSV file, or raise FileError if its first line holds data."""
    names = _csv_names(path)
    if names and all(_is_number(name) for name in names):
        raise FileError(
            f"{path} has no header: its first line is {', '.join(names[:3])}… Add a first line with the column names."
        )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise FileError(f"{path} is not separated by commas: its first line is {names[0]!r}. Save it with commas.")
    return TableHeader(names)


def csv_frames(path: Path, columns: Sequence[str], rows: int, texts: Sequence[str] = ()) -> Iterator["DataFrame"]:
    """Iterate over ``columns`` of a CSV file (optionally gzipped), in this order, at most ``rows`` at a time.

    Columns in ``texts`` are read as strings, so that a name such as ``007`` is no number.
    """
    import pandas as pd

    with (
        _clear_read_errors(path),
        _CsvFile(path, _MAX_COMMAS) as file,
        pd.read_csv(
            file,
            usecols=list(columns),
            chunksize=_limit_rows(rows, len(_csv_names(path))),
            encoding="utf-8-sig",
            dtype=dict.fromkeys(texts, str),
            low_memory=False,  # one data type per column and chunk
        ) as frames,
    ):
        for frame in frames:
            file.begin_frame()
            yield frame[list(columns)]


def parquet_header(path: Path) -> TableHeader:
    """Return the columns of a Parquet file without those of the pandas index, and its number of rows."""
    import pyarrow.parquet as pq

    with _clear_read_errors(path), pq.ParquetFile(path) as file:
        metadata = file.schema_arrow.pandas_metadata or {}
        index = {name for name in metadata.get("index_columns", []) if isinstance(name, str)}
        names = tuple(str(name) for name in file.schema_arrow.names if name not in index)
        _check_columns(path, names)
        if len(set(names)) < len(names):
            raise ValueError("two of its columns have the same name")
        return TableHeader(names, int(file.metadata.num_rows))


def parquet_frames(path: Path, columns: Sequence[str], rows: int) -> Iterator["DataFrame"]:
    """Iterate over ``columns`` of a Parquet file, in this order, at most ``rows`` at a time."""
    import pyarrow.parquet as pq
    from pyarrow import types

    # Both options are needed to read lazily: a file may be a single row group of millions of rows.
    with _clear_read_errors(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
        for name in columns:
            # Checked before reading, as a long text that is stored once may be repeated in every row.
            kind = file.schema_arrow.field(name).type
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise BatchError(
                    f"Column {name!r} of {path} is not numeric: it holds {str(kind)[:100]}. Exclude it with "
                    "--columns, or convert it to numbers."
                )
        for batch in file.iter_batches(batch_size=_limit_rows(rows, len(columns)), columns=list(columns)):
            frame: DataFrame = batch.to_pandas(ignore_metadata=True)
            yield frame[list(columns)]


CSV = TableFormat(csv_header, csv_frames)
PARQUET = TableFormat(parquet_header, parquet_frames)


class _CsvFile(BoundedFile):
    """CSV file with limits on the bytes and commas of one frame; ``commas`` bounds the number of cells."""

    def __init__(self, path: Path, commas: int) -> None:
        super().__init__(path, gzipped=path.suffix == ".gz")
        self._max_commas = commas
        self.begin_frame()

    def begin_frame(self) -> None:
        """Reset the counts."""
        self._bytes = self._commas = 0

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes, or raise FileError if the frame exceeds its limits."""
        raw = super().read(size)
        self._bytes += len(raw)
        self._commas += raw.count(b",")
        if self._bytes > _MAX_FRAME_BYTES or self._commas > self._max_commas:
            raise FileError(
                f"{self.path} has lines that are too long to be read: a few of its rows take more than {self._bytes} "
                f"bytes and {self._commas} commas. At most {MAX_COLUMNS} columns are read; remove text columns."
            )
        return raw


def _csv_names(path: Path) -> tuple[str, ...]:
    import pandas as pd

    # pandas reads ahead past the first line, so allow for the commas of the lines that follow.
    with _clear_read_errors(path), _CsvFile(path, MAX_COLUMNS + 2**18) as file:
        names = tuple(str(name) for name in pd.read_csv(file, nrows=0, encoding="utf-8-sig").columns)
        _check_columns(path, names)
    return names


def _check_columns(path: Path, names: Sequence[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise FileError(f"{path} has {len(names)} columns; at most {MAX_COLUMNS} are read. Remove some.")


def _limit_rows(rows: int, columns: int) -> int:
    """Return ``rows``, reduced so that a frame has at most ``MAX_FRAME_CELLS`` cells."""
    return min(rows, max(1, MAX_FRAME_CELLS // max(1, columns)))


@contextmanager
def _clear_read_errors(path: Path) -> Iterator[None]:
    with convert_errors(
        lambda why: FileError(f"Could not read {path}: {why}. Check that its contents match its suffix.")
    ):
        yield


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
