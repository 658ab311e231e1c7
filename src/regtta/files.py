"""Writing without losing what was there; reading safetensors without ever running a pickle."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regtta.errors import (
    ExistingFileError,
    FileError,
    ForeignFileError,
    MissingFileError,
    PickleRefusedError,
    TruncatedFileError,
)

_ZIP_OR_PICKLE = (b"PK\x03\x04", b"\x80")
_LENGTH_BYTES = 8


def refuse_existing(path: str | Path, *, overwrite: bool, remedy: str = "overwrite=True") -> Path:
    """``path``, once it is sure that nothing the user made would be lost by writing there."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise ExistingFileError(f"{path} exists. Choose another path, or pass {remedy}.")
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into.")
    return path


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``tensors`` to ``path`` in one move: a reader sees the old file or the whole new one."""
    whole = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    with written_whole(path) as draft:
        try:
            save_file(whole, draft, metadata=dict(metadata or {}))
        except SafetensorError as error:
            raise FileError(f"Could not write {path}: {error}.") from error


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to in the block; what is there moves to ``path`` only if the block ends well."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise FileError(f"Could not write {path}: {error}.") from error
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        raise FileError(f"Could not write {path}: {error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file, or the error that says what is wrong with it."""
    with _opened(Path(path)) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata alone of a safetensors file, whatever the size of its tensors."""
    with _opened(Path(path)) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:  # safetensors has no types for what it opens
    _refuse_unreadable(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ForeignFileError(f"{path} is not a safetensors file: {error}.") from error


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """A state dict from safetensors, or from ``torch.save`` through ``weights_only``.

    A checkpoint that keeps its state dict under ``state_dict`` or ``model`` is looked into.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return read_safetensors(path)[0]
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    try:
        content: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds, all of which mean the same here
        raise PickleRefusedError(
            f"{path} cannot be loaded as plain weights, and pickles that could run code are never "
            f"loaded. Save model.state_dict() with torch.save or safetensors. "
            f"(torch said: {str(error).splitlines()[0] if str(error) else type(error).__name__})"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if isinstance(content, Mapping) and all(isinstance(v, Tensor) for v in content.values()):
        return dict(content)
    raise ForeignFileError(f"{path} holds no state dict: expected a mapping from names to tensors.")


def _refuse_unreadable(path: Path) -> None:
    if not path.is_file():
        raise MissingFileError(f"There is no file {path}.")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_LENGTH_BYTES + 1)
        if start.startswith(_ZIP_OR_PICKLE) and not start.endswith(b"{"):
            raise PickleRefusedError(
                f"{path} looks like a pickle or a torch.save archive, not safetensors. Pickles can run "
                "code when loaded, so regtta never loads one. Save again with .save()."
            )
        length = int.from_bytes(start[:_LENGTH_BYTES], "little")
        if size > _LENGTH_BYTES and not start.endswith(b"{"):
            raise ForeignFileError(f"{path} is not a safetensors file: it has no safetensors header.")
        whole = _LENGTH_BYTES + length
        if size >= whole > _LENGTH_BYTES:
            whole += _data_bytes(b"{" + file.read(length - 1))
    if size < whole or size <= _LENGTH_BYTES:
        raise TruncatedFileError(f"{path} is cut off after {size} bytes. Copy it again from its source.")


def _data_bytes(header: bytes) -> int:
    """How many bytes of data a safetensors header promises; 0 where it makes no sense at all."""
    try:
        entries = json.loads(header)
        ends = (int(e["data_offsets"][1]) for k, e in entries.items() if k != "__metadata__")
        return max(ends, default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return 0
