"""CSV and Parquet files as frames of at most so many rows, so that memory does not grow with the file."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regtta.errors import BatchError, FileError
from regtta.reading import BoundedFile, clear_errors

if TYPE_CHECKING:
    from pandas import DataFrame


MOST_COLUMNS = 100_000  # tables of gene expression have some 60,000
CELLS_AT_ONCE = 2**22  # that a frame may have: 8,192 rows of 512 columns, 32 MiB as float64
# A file where a frame takes more than this has cells that are no numbers, or lines without end.
_MOST_COMMAS, _MOST_FRAME_BYTES = 4 * CELLS_AT_ONCE, 256 * 2**20


@dataclass(frozen=True)
class Header:
    """The ``columns`` of a table, and how many ``rows`` it has where that is known without reading it."""

    columns: tuple[str, ...]
    rows: int | None = None


@dataclass(frozen=True)
class Format:
    """How one kind of table is read: its header, and its columns in frames of at most so many rows."""

    header: Callable[[Path], Header]
    frames: Callable[[Path, Sequence[str], int], Iterator["DataFrame"]]


def csv_header(path: Path) -> Header:
    """The first line of a CSV file, which must be names and not yet data."""
    names = _csv_names(path)
    if names and all(_is_number(name) for name in names):
        raise FileError(
            f"{path} has no header: its first line is {', '.join(names[:3])}… Write the names of the columns there."
        )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise FileError(f"{path} is not separated by commas: its first line is {names[0]!r}. Save it so.")
    return Header(names)


def csv_frames(path: Path, columns: Sequence[str], rows: int) -> Iterator["DataFrame"]:
    """The ``columns`` of a CSV file (gzipped or not), in their order, at most ``rows`` at a time."""
    import pandas as pd

    with (
        _reading(path),
        _CsvFile(path, _MOST_COMMAS) as file,
        pd.read_csv(
            file,
            usecols=list(columns),
            chunksize=_fewer(rows, len(_csv_names(path))),
            encoding="utf-8-sig",
            low_memory=False,  # one type a column and chunk
        ) as frames,
    ):
        for frame in frames:
            file.begin_frame()
            yield frame[list(columns)]


def parquet_header(path: Path) -> Header:
    """The columns of a Parquet file, without those that only hold pandas' index."""
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path) as file:
        about = file.schema_arrow.pandas_metadata or {}
        index = {name for name in about.get("index_columns", []) if isinstance(name, str)}
        names = tuple(str(name) for name in file.schema_arrow.names if name not in index)
        _check_columns(path, names)
        if len(set(names)) < len(names):
            raise ValueError("two of its columns have one name")
        return Header(names, int(file.metadata.num_rows))


def parquet_frames(path: Path, columns: Sequence[str], rows: int) -> Iterator["DataFrame"]:
    """The ``columns`` of a Parquet file, in their order, at most ``rows`` at a time."""
    import pyarrow.parquet as pq
    from pyarrow import types

    # Read on as rows are asked for, both options together: a file may well be one group of millions of rows.
    with _reading(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
        for name in columns:
            # Before any of it is read: a text that is stored once may be repeated in every row.
            kind = file.schema_arrow.field(name).type
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise BatchError(
                    f"Column {name!r} of {path} is not numeric: it holds {str(kind)[:100]}. Leave it out with "
                    "--columns, or turn it into numbers."
                )
        for batch in file.iter_batches(batch_size=_fewer(rows, len(columns)), columns=list(columns)):
            frame: DataFrame = batch.to_pandas(ignore_metadata=True)
            yield frame[list(columns)]


CSV = Format(csv_header, csv_frames)
PARQUET = Format(parquet_header, parquet_frames)


class _CsvFile(BoundedFile):
    """The bytes of a CSV file, so many at most for one frame; ``commas`` tell how many cells would be held."""

    def __init__(self, path: Path, commas: int) -> None:
        super().__init__(path, gzipped=path.suffix == ".gz")
        self._most_commas = commas
        self.begin_frame()

    def begin_frame(self) -> None:
        """Count anew."""
        self._bytes = self._commas = 0

    def read(self, size: int = -1, /) -> bytes:
        """As a bounded file does."""
        raw = super().read(size)
        self._bytes += len(raw)
        self._commas += raw.count(b",")
        if self._bytes > _MOST_FRAME_BYTES or self._commas > self._most_commas:
            raise FileError(
                f"{self.path} has lines that are too long to be read: {self._bytes} bytes and {self._commas} commas "
                f"were not enough for a few of its rows. At most {MOST_COLUMNS} columns are read; leave out texts."
            )
        return raw


def _csv_names(path: Path) -> tuple[str, ...]:
    import pandas as pd

    # pandas reads on past the first line, by so much that there may be other commas in it.
    with _reading(path), _CsvFile(path, MOST_COLUMNS + 2**18) as file:
        names = tuple(str(name) for name in pd.read_csv(file, nrows=0, encoding="utf-8-sig").columns)
        _check_columns(path, names)
    return names


def _check_columns(path: Path, names: Sequence[str]) -> None:
    if len(names) > MOST_COLUMNS:
        raise FileError(f"{path} has {len(names)} columns; at most {MOST_COLUMNS} are read. Leave some out.")


def _fewer(rows: int, columns: int) -> int:
    """``rows``, or as many as make a frame of no more than ``CELLS_AT_ONCE``."""
    return min(rows, max(1, CELLS_AT_ONCE // max(1, columns)))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with clear_errors(lambda why: FileError(f"Could not read {path}: {why}. Check that it is what its name says.")):
        yield


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
