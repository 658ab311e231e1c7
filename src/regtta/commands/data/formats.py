"""CSV and Parquet files as frames of at most so many rows, so that memory does not grow with the file."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regtta.errors import FileError

if TYPE_CHECKING:
    from pandas import DataFrame


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
    import pandas as pd

    with _reading(path):
        names = tuple(str(name) for name in pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns)
    if names and all(_is_number(name) for name in names):
        raise FileError(
            f"{path} has no header: its first line is {', '.join(names[:3])}… Write the names of the columns there."
        )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise FileError(f"{path} is not separated by commas: its first line is {names[0]!r}. Save it so.")
    return Header(names)


def csv_frames(path: Path, columns: Sequence[str], rows: int) -> Iterator["DataFrame"]:
    """The ``columns`` of a CSV file (gzipped or not), in their order, ``rows`` at a time."""
    import pandas as pd

    with (
        _reading(path),
        pd.read_csv(
            path,
            usecols=list(columns),
            chunksize=rows,
            encoding="utf-8-sig",
            low_memory=False,  # one type a column and chunk
        ) as frames,
    ):
        for frame in frames:
            yield frame[list(columns)]


def parquet_header(path: Path) -> Header:
    """The columns of a Parquet file, without those that only hold pandas' index."""
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path) as file:
        about = file.schema_arrow.pandas_metadata or {}
        index = {name for name in about.get("index_columns", []) if isinstance(name, str)}
        names = tuple(str(name) for name in file.schema_arrow.names if name not in index)
        return Header(names, int(file.metadata.num_rows))


def parquet_frames(path: Path, columns: Sequence[str], rows: int) -> Iterator["DataFrame"]:
    """The ``columns`` of a Parquet file, in their order, at most ``rows`` at a time."""
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
            frame: DataFrame = batch.to_pandas(ignore_metadata=True)
            yield frame[list(columns)]


CSV = Format(csv_header, csv_frames)
PARQUET = Format(parquet_header, parquet_frames)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    # pandas' and pyarrow's own errors are ValueErrors; a cut-off .gz gives the last two.
    try:
        yield
    except (ValueError, OSError, EOFError, zlib.error) as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise FileError(f"Could not read {path}: {text}. Check that it is what its name says.") from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
