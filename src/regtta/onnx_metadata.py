"""The metadata of an ONNX file, read without the package onnx and without the weights.

An ONNX file is one protobuf message: fields one after the other, each with its number and its kind, and a
length where it has no fixed one. So a reader can step over the graph, where the weights are, and look at
nothing but the entries of ``metadata_props``.
"""

from pathlib import Path
from typing import BinaryIO

from regtta.errors import FileError, ForeignFileError, MissingFileError

_METADATA_PROPS = 14  # of ModelProto; each holds a key (1) and a value (2)
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_LENGTHS = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10
_MOST_ENTRIES = 10_000


def read_onnx_metadata(path: Path, key: str, *, limit: int) -> bytes | None:
    """The value of ``key``; ``None`` where the file has no such entry.

    Args:
        path: an ONNX file.
        key: of the entry.
        limit: more bytes than this are not read for one entry.
    """
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        with path.open("rb") as file:
            return _search(file, path.stat().st_size, key.encode(), limit)
    except ValueError as error:
        raise ForeignFileError(f"{path} is not an ONNX file, or is cut off: {error}.") from error
    except OSError as error:
        raise FileError(f"Could not read {path}: {error}.") from error


def _search(file: BinaryIO, size: int, key: bytes, limit: int) -> bytes | None:
    found, entries = None, 0
    if size == 0:
        raise ValueError("it is empty")
    while file.tell() < size:
        number, length = _field(file, size)
        if number != _METADATA_PROPS:
            file.seek(length, 1)
            continue
        entries += 1
        if length > limit or entries > _MOST_ENTRIES:
            raise ValueError("its metadata is too large")
        end = file.tell() + length
        parts = {}
        while file.tell() < end:
            part, part_length = _field(file, end)
            parts[part] = file.read(part_length)
        if parts.get(_KEY) == key:
            found = parts.get(_VALUE, b"")
    return found


def _field(file: BinaryIO, end: int) -> tuple[int, int]:
    """Number of the field that begins here, and the bytes that its content takes from where the file then stands."""
    number, kind = divmod(_varint(file), 8)
    if kind == _VARINT:
        _varint(file)
        length = 0
    elif kind == _BYTES:
        length = _varint(file)
    elif kind in _FIXED_LENGTHS:
        length = _FIXED_LENGTHS[kind]
    else:
        raise ValueError(f"it has a field of unknown kind {kind}")
    if number == 0 or file.tell() + length > end:
        raise ValueError("a field reaches beyond the end")
    return number, length


def _varint(file: BinaryIO) -> int:
    """A number in groups of seven bits, the lowest first; the eighth bit says that more follow."""
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = file.read(1)
        if not byte:
            raise ValueError("it ends inside a field")
        value |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:
            return value
    raise ValueError("a number is too long")
