"""Safe reading of possibly damaged or malicious files, within bounded memory and with clear errors.

Readers check declared sizes before allocating memory and decompress files in chunks, up to the limit of
:func:`max_decompressed_size`. The readers of the standard library, numpy and safetensors trust the sizes that a file
declares, so these checks are implemented here.
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

from regtta.errors import FileError, InvalidFileError, RegttaError

# Images decompress to about their own size, tables to 3 to 20 times, sparse arrays seldom to 50 times; a decompression
# bomb to 1,000 times, the maximum of deflate.
MAX_COMPRESSION_RATIO = 100
# Always allowed: small files of constant data may well decompress to 1,000 times their size.
MIN_SIZE_LIMIT = 256 * 2**20
# Results, records and settings take some kilobytes each; the largest real one takes a few megabytes.
MAX_JSON_BYTES = 256 * 2**20
_MAX_REASON_LENGTH = 300
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextmanager
def convert_errors(make_error: Callable[[str], RegttaError]) -> Iterator[None]:
    """Convert any exception raised inside the block to the error that ``make_error`` creates from its message.

    Parsers raise many kinds of exceptions on damaged files, from KeyError to OverflowError.

    Example:
        >>> with convert_errors(lambda why: FileError(f"x.csv is no table: {why}.")):
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
        raise make_error(text if len(text) <= _MAX_REASON_LENGTH else f"{text[:_MAX_REASON_LENGTH]}…") from error


def parse_json(raw: bytes | str) -> object:
    """Parse JSON strictly: raise a ValueError for duplicate keys, NaN and too deep a nesting as well.

    Example:
        >>> parse_json('{"a": 1, "a": 2}')
        Traceback (most recent call last):
        ValueError: the key 'a' is named twice
    """
    try:
        content: object = json.loads(raw, object_pairs_hook=_unique_keys, parse_constant=_reject_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return content


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file; raise a FileError if it has more than ``max_bytes`` bytes."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = file.read(size + 1) if size <= max_bytes else b""
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    if max(size, len(raw)) > max_bytes:
        raise InvalidFileError(f"{path} has more than {max_bytes} bytes, the most that are read. Is it the right file?")
    return raw


def max_decompressed_size(packed: int) -> int:
    """Return the maximum number of bytes that ``packed`` compressed bytes may decompress to."""
    return max(MIN_SIZE_LIMIT, MAX_COMPRESSION_RATIO * packed)


class BoundedFile(io.RawIOBase):
    """Binary file, optionally gzipped, with limits on its total size and on the size of a single read.

    Args:
        path: path of the file.
        gzipped: decompress the file while reading.
        max_size: maximum number of (decompressed) bytes; by default its size, or :func:`max_decompressed_size` of that.

    Attributes:
        max_read: maximum number of bytes of one read, which catches headers that declare absurd lengths.
    """

    def __init__(self, path: Path, *, gzipped: bool, max_size: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.max_read = 2**20
        self._file = path.open("rb")
        size = os.fstat(self._file.fileno()).st_size
        limit = max_decompressed_size(size) if gzipped else size
        self._max_size = limit if max_size is None else min(max_size, limit)
        self._open: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._file) if gzipped else self._file

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return at most ``size`` bytes; ``size`` must be given."""
        if not 0 <= size <= self.max_read:
            raise InvalidFileError(f"{self.path} is damaged: it has a header that declares {size} bytes. Get it again.")
        raw = self._open.read(size)
        self._check(self.tell())
        return raw

    def seek(self, place: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position from the start; other reference points are not supported."""
        if whence != os.SEEK_SET or place < 0:
            raise InvalidFileError(f"{self.path} is damaged: it refers to the byte {place}. Get it again.")
        self._check(place)
        return self._open.seek(place)

    def tell(self) -> int:
        """Return the current position in decompressed bytes."""
        return self._open.tell()

    def close(self) -> None:
        """Close this object and the underlying file."""
        super().close()
        self._file.close()

    def _check(self, place: int) -> None:
        if place > self._max_size:
            raise InvalidFileError(
                f"{self.path} holds, or declares, more than {self._max_size} bytes, the maximum for a file of its "
                "size. It is truncated, or made to exhaust the memory. Get it again."
            )


def npz_names(archive: zipfile.ZipFile) -> tuple[str, ...]:
    """Return the names of the arrays in an NPZ archive."""
    return tuple(name.removesuffix(".npy") for name in archive.namelist())


def npz_array(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    """Return one array of an NPZ archive; raise a ValueError if its declared sizes are inconsistent or too large.

    Object arrays raise a ValueError as well, since they are pickles, which could run code.
    """
    entry = next(known for known in archive.infolist() if known.filename in (f"{name}.npy", name))
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is compressed in a way that numpy never uses")
    available = Path(str(archive.filename)).stat().st_size
    packed = min(entry.compress_size, available)
    if entry.file_size > (available if entry.compress_type == zipfile.ZIP_STORED else max_decompressed_size(packed)):
        raise ValueError(f"{name!r} would unpack from {packed} to {entry.file_size} bytes, which is damage or a bomb")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in _NPY_HEADERS:
            raise ValueError(f"{name!r} has the format {version}; known are {list(_NPY_HEADERS)}")
        shape, _, dtype = _NPY_HEADERS[version](file)
        declared = file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError(f"{name!r} holds objects, which are pickles, and those are never loaded")
    if declared != entry.file_size or min(shape, default=0) < 0:
        raise ValueError(f"{name!r} declares {declared} bytes in the shape {shape}, and has {entry.file_size}")
    with archive.open(entry) as file:
        values: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
    return values


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content: dict[str, object] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {key!r} is named twice")
        content[key] = value
    return content


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not valid JSON")
