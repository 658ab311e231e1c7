"""Reading of the metadata of ONNX files, without the package onnx and without loading the weights."""

from pathlib import Path
from typing import BinaryIO

from regtta.errors import FileError, InvalidFileError, MissingFileError

_METADATA_PROPS = 14  # field number in ModelProto; each entry has a key (1) and a value (2)
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_LENGTHS = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10
_MOST_ENTRIES = 10_000


def read_onnx_metadata(path: Path, key: str, *, limit: int) -> bytes | None:
    """Return the metadata value of ``key``, or ``None`` if the file has no such entry.

    Args:
        path: an ONNX file.
        key: key of the entry.
        limit: largest size of one entry, in bytes.
    """
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        with path.open("rb") as file:
            return _search(file, path.stat().st_size, key.encode(), limit)
    except ValueError as error:
        raise InvalidFileError(f"{path} is not an ONNX file, or is truncated: {error}.") from error
    except OSError as error:
        raise FileError(f"Could not read {path}: {error}.") from error


def _search(file: BinaryIO, size: int, key: bytes, limit: int) -> bytes | None:
    found, entries = None, 0
    if size == 0:
        raise ValueError("the file is empty")
    while file.tell() < size:
        number, length = _field(file, size)
        if number != _METADATA_PROPS:
            file.seek(length, 1)
            continue
        entries += 1
        if length > limit or entries > _MOST_ENTRIES:
            raise ValueError("the metadata is too large")
        end = file.tell() + length
        parts = {}
        while file.tell() < end:
            part, part_length = _field(file, end)
            parts[part] = file.read(part_length)
        if parts.get(_KEY) == key:
            found = parts.get(_VALUE, b"")
    return found


def _field(file: BinaryIO, end: int) -> tuple[int, int]:
    """Read the header of a field and return its number and the number of content bytes that follow."""
    number, wire_type = divmod(_varint(file), 8)
    if wire_type == _VARINT:
        _varint(file)
        length = 0
    elif wire_type == _BYTES:
        length = _varint(file)
    elif wire_type in _FIXED_LENGTHS:
        length = _FIXED_LENGTHS[wire_type]
    else:
        raise ValueError(f"a field has the unknown wire type {wire_type}")
    if number == 0 or file.tell() + length > end:
        raise ValueError("a field extends beyond the end")
    return number, length


def _varint(file: BinaryIO) -> int:
    """Read a base-128 varint: groups of seven bits, lowest first, with the eighth bit set if another group follows."""
    value = 0
    for index in range(_LONGEST_VARINT):
        byte = file.read(1)
        if not byte:
            raise ValueError("the file ends inside a field")
        value |= (byte[0] & 0x7F) << 7 * index
        if byte[0] < 0x80:
            return value
    raise ValueError("a varint is too long")
