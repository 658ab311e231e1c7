"""Reading what may be damaged or hostile: within bounded memory, and every failure a clear error.

Readers refuse a size that a file declares before anything is allocated for it, and unpack compressed files in pieces
under one rule, :func:`most_unpacked`.
"""

import gzip
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from regtta.errors import FileError, ForeignFileError, RegttaError

# Pictures unpack to about their own size, tables to 3 to 20 times it, sparse arrays seldom to 50 times; a bomb of zeros
# to 1,000 times, which is the most that deflate can do.
MOST_TIMES = 100
# Below this much nothing is a bomb: small files of constant data may well unpack to 1,000 times their size.
ALWAYS_UNPACKED = 256 * 2**20
# Results, records and settings are some kilobytes each; the longest real one is a few megabytes.
MOST_JSON_BYTES = 256 * 2**20
_LONGEST_REASON = 300
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextmanager
def clear_errors(tell: Callable[[str], RegttaError]) -> Iterator[None]:
    """Raise what ``tell`` makes of the reason, whatever a parser raises inside the block.

    Parsers of damaged files raise nearly anything, from KeyError to OverflowError, and all of it means the same.

    Example:
        >>> with clear_errors(lambda why: FileError(f"x.csv is no table: {why}.")):
        ...     raise KeyError("column")
        Traceback (most recent call last):
        regtta.errors.FileError: x.csv is no table: 'column'.
    """
    try:
        yield
    except RegttaError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise tell(text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…") from error


def parse_json(raw: bytes | str) -> object:
    """What JSON says. A key named twice, NaN and too deep a nesting are ValueErrors, like any other slip.

    Example:
        >>> parse_json('{"a": 1, "a": 2}')
        Traceback (most recent call last):
        ValueError: the key 'a' is named twice
    """
    try:
        content: object = json.loads(raw, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return content


def read_whole(path: Path, most: int) -> bytes:
    """The bytes of a file that has at most ``most``."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = file.read(size + 1) if size <= most else b""
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    if max(size, len(raw)) > most:
        raise ForeignFileError(f"{path} has more than {most} bytes, the most that are read. Is it the right file?")
    return raw


def most_unpacked(packed: int) -> int:
    """How many bytes so many packed ones may unpack to."""
    return max(ALWAYS_UNPACKED, MOST_TIMES * packed)


class BoundedFile(io.RawIOBase):
    """A file, unpacked where it is gzipped, that never gives more than it may hold, nor much in one piece.

    Args:
        path: the file.
        gzipped: whether to unpack it.
        most: bytes it may hold; by default its size, or :func:`most_unpacked` of that.

    Attributes:
        at_once: the most bytes that one call may ask for. A header that declares an absurd length ends here.
    """

    def __init__(self, path: Path, *, gzipped: bool, most: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.at_once = 2**20
        self._file = path.open("rb")
        size = os.fstat(self._file.fileno()).st_size
        limit = most_unpacked(size) if gzipped else size
        self._most = limit if most is None else min(most, limit)
        self._open: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._file) if gzipped else self._file

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, which must be said."""
        if not 0 <= size <= self.at_once:
            raise ForeignFileError(f"{self.path} is damaged: it has a header that promises {size} bytes. Get it again.")
        raw = self._open.read(size)
        self._check(self.tell())
        return raw

    def seek(self, place: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place from the start."""
        if whence != os.SEEK_SET or place < 0:
            raise ForeignFileError(f"{self.path} is damaged: it leads to the byte {place}. Get it again.")
        self._check(place)
        return self._open.seek(place)

    def tell(self) -> int:
        """How many unpacked bytes lie before."""
        return self._open.tell()

    def close(self) -> None:
        """Close the file too."""
        super().close()
        self._file.close()

    def _check(self, place: int) -> None:
        if place > self._most:
            raise ForeignFileError(
                f"{self.path} holds, or promises, more than {self._most} bytes, the most that a file of its size may. "
                "It is cut off, or made to fill the memory. Get it again."
            )


def npz_names(archive: zipfile.ZipFile) -> tuple[str, ...]:
    """What the arrays of an NPZ archive are called."""
    return tuple(name.removesuffix(".npy") for name in archive.namelist())


def npz_array(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    """One array, once its header and the archive agree on a size that may be; a ValueError where they do not.

    Objects are pickles, which could run code: they are refused.
    """
    entry = next(known for known in archive.infolist() if known.filename in (f"{name}.npy", name))
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is packed in a way that numpy never does")
    there = Path(str(archive.filename)).stat().st_size
    packed = min(entry.compress_size, there)
    if entry.file_size > (there if entry.compress_type == zipfile.ZIP_STORED else most_unpacked(packed)):
        raise ValueError(f"{name!r} would unpack from {packed} to {entry.file_size} bytes, which is damage or a bomb")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in _NPY_HEADERS:
            raise ValueError(f"{name!r} has the format {version}; known are {list(_NPY_HEADERS)}")
        shape, _, dtype = _NPY_HEADERS[version](file)
        promised = file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError(f"{name!r} holds objects, which are pickles, and those are never loaded")
    if promised != entry.file_size or min(shape, default=0) < 0:
        raise ValueError(f"{name!r} promises {promised} bytes in the shape {shape}, and has {entry.file_size}")
    with archive.open(entry) as file:
        values: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
    return values


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content: dict[str, object] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {key!r} is named twice")
        content[key] = value
    return content


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
