"""Reading and writing of safetensors files and model weights without executing pickles."""

import mmap
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regtta.errors import (
    FileError,
    InvalidFileError,
    MissingFileError,
    RegttaError,
    TruncatedFileError,
    UnsafePickleError,
)
from regtta.persistence.atomic_files import atomic_write
from regtta.persistence.safe_read import convert_errors, parse_json

_ZIP_OR_PICKLE = (b"PK\x03\x04", b"\x80")
_LENGTH_BYTES = 8
# A tensor takes about 100 bytes of the header, so this allows 250,000 of them; the largest models have 10,000.
_MAX_HEADER_BYTES = 25 * 2**20


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``tensors`` to ``path`` atomically: a reader sees either the old file or the complete new one."""
    whole = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    with atomic_write(path) as temporary:
        try:
            save_file(whole, temporary, metadata=dict(metadata or {}))
        except SafetensorError as error:
            raise _cause(error) from error


def _cause(error: SafetensorError) -> OSError:
    """Return the OSError behind ``error``, whose number safetensors reports only as text: ``... (os error 28)``."""
    found = re.search(r"os error (\d+)", str(error))
    return OSError(str(error)) if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file; raise a FileError if it is invalid."""
    with _opened(Path(path)) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a safetensors file without loading its tensors."""
    with _opened(Path(path)) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:  # safetensors has no type annotation for its file handle
    try:
        _check_readable(path)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}. Let this user read it.") from error
    with (
        convert_errors(lambda why: InvalidFileError(f"{path} is not a safetensors file: {why}. Copy it again.")),
        safe_open(path, framework="pt", device="cpu") as file,
    ):
        yield file


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """Return the state dict of a safetensors file, or of a ``torch.save`` file loaded with ``weights_only=True``.

    The state dict may be nested in a checkpoint under ``state_dict`` or ``model``.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return read_safetensors(path)[0]
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")

    def rejected(why: str) -> RegttaError:
        return UnsafePickleError(
            f"{path} cannot be loaded as plain weights, and pickles that could run code are never "
            f"loaded. Save model.state_dict() with torch.save or safetensors. (torch said: {why})"
        )

    with convert_errors(rejected):
        content = load_tensors(path, torch.device("cpu"))
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if isinstance(content, Mapping) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()):
        return dict(content)
    raise InvalidFileError(f"{path} holds no state dict: expected a mapping from names to tensors.")


def load_tensors(path: Path, device: torch.device) -> object:
    """Return the tensors and plain values of a ``torch.save`` file; nothing else in the file is executed.

    Raises a ValueError for a file that could exhaust the memory, and whatever error torch raises for a damaged one.
    ``torch.save`` never compresses its archives, and torch does not bound what it unpacks from a compressed one. Of the
    callables that torch permits, only bytearray allocates as much memory as the file declares, and no tensor needs it.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        packed = raw[:2] == b"PK"
        if raw.find(b"bytearray") >= 0:
            raise ValueError("it holds a bytearray, which is not a tensor")
    if packed:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed, which torch.save never does")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise ValueError("it declares more bytes than it has")
    content: object = torch.load(path, map_location=device, weights_only=True)
    return content


def _check_readable(path: Path) -> None:
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_LENGTH_BYTES + 1)
        if start.startswith(_ZIP_OR_PICKLE) and not start.endswith(b"{"):
            raise UnsafePickleError(
                f"{path} looks like a pickle or a torch.save archive, not safetensors. Pickles can run "
                "code when loaded, so regtta never loads one. Save again with .save()."
            )
        length = int.from_bytes(start[:_LENGTH_BYTES], "little")
        if size > _LENGTH_BYTES and not start.endswith(b"{"):
            raise InvalidFileError(f"{path} is not a safetensors file: it has no safetensors header.")
        if length > _MAX_HEADER_BYTES and size >= _LENGTH_BYTES:
            raise InvalidFileError(
                f"{path} is not a safetensors file: it declares a header of {length} bytes, and at most "
                f"{_MAX_HEADER_BYTES} are read. Copy it again from its source."
            )
        whole = _LENGTH_BYTES + length
        if size >= whole > _LENGTH_BYTES:
            whole += _data_bytes(b"{" + file.read(length - 1))
    if size < whole or size <= _LENGTH_BYTES:
        raise TruncatedFileError(f"{path} is cut off after {size} bytes. Copy it again from its source.")


def _data_bytes(header: bytes) -> int:
    """Return the number of data bytes that a safetensors header declares; 0 if the header is malformed."""
    try:
        entries = parse_json(header)
        if not isinstance(entries, Mapping):
            return 0
        ends = (int(e["data_offsets"][1]) for k, e in entries.items() if k != "__metadata__")
        return max(ends, default=0)
    except (ValueError, TypeError, LookupError, OverflowError):
        return 0
