"""Store of results as JSON lines: one run per line, identified by the key of its specification."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regtta.errors import FileError, InvalidFileError
from regtta.persistence import MAX_JSON_BYTES, parse_json, read_bounded

_FIELD_TYPES = {"key": str, "specification": dict, "result": dict}
_RECORD_PREFIX = '{"key": "'  # of every record; a last line that begins otherwise is not an interrupted write

logger = logging.getLogger(__name__)


def compute_key(specification: Mapping[str, object]) -> str:
    """Return a short hash of ``specification``, the same in every process.

    Example:
        >>> compute_key({"k": 25, "lr": 1e-3}) == compute_key({"lr": 0.001, "k": 25})
        True
    """
    text = json.dumps(specification, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RunStore:
    """File of runs, each with its specification and its result.

    Each run is written in one call and synced to disk. An incomplete last line, left by an interrupted write, is
    skipped when the file is read, so that its run is repeated.

    Args:
        path: path of the file; created with the first run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._keys = {str(record["key"]) for record in self}

    def __contains__(self, specification: Mapping[str, object]) -> bool:
        """Return True if the store has a run of this specification."""
        return compute_key(specification) in self._keys

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over all complete records, in the order they were written."""
        if not self.path.exists():
            return
        lines = self._lines()
        for number, line in enumerate(lines, start=1):
            try:
                record = parse_json(line)
            except ValueError as error:
                if number < len(lines) or not line.startswith(_RECORD_PREFIX[: len(line)]):
                    raise InvalidFileError(
                        f"{self.path}, line {number}, is not JSON: {error}. Choose another file."
                    ) from error
                logger.warning("%s ends in an incomplete line; its run will be repeated.", self.path)
                return
            if not isinstance(record, dict) or not all(
                isinstance(record.get(key), k) for key, k in _FIELD_TYPES.items()
            ):
                raise InvalidFileError(f"{self.path}, line {number}, is not a record of a run. Choose another file.")
            yield record

    def _lines(self) -> list[str]:
        try:
            return read_bounded(self.path, MAX_JSON_BYTES).decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InvalidFileError(f"{self.path} is not a file of runs: {error}. Choose another file.") from error

    def add(self, specification: Mapping[str, object], result: Mapping[str, object]) -> None:
        """Append a run and sync it to disk."""
        key = compute_key(specification)
        record = {"key": key, "specification": dict(specification), "result": dict(result)}
        line = json.dumps(record, allow_nan=False) + "\n"
        try:
            _truncate_incomplete_line(self.path)
            with self.path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(f"Could not write {self.path}: {error}.") from error
        self._keys.add(key)


def _truncate_incomplete_line(path: Path) -> None:
    """Truncate an incomplete last line, so that the next record begins on a line of its own."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
    os.truncate(path, whole)
