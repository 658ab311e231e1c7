"""Results as JSON lines: one run a line, found again by the key of its specification."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regtta.errors import FileError, ForeignFileError
from regtta.reading import MOST_JSON_BYTES, parse_json, read_whole

_KINDS = {"key": str, "specification": dict, "result": dict}
_BEGINNING = '{"key": "'  # of every line: only what begins so may be the half of one that a kill left

logger = logging.getLogger(__name__)


def key_of(specification: Mapping[str, object]) -> str:
    """A short mark of everything that a run is specified by; the same in every process.

    Example:
        >>> key_of({"k": 25, "lr": 1e-3}) == key_of({"lr": 0.001, "k": 25})
        True
    """
    text = json.dumps(specification, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class RunStore:
    """A file of runs, each with its specification and what came of it.

    A run is written in one go and forced to the disk. A line that a kill cut off is left out when the file is read,
    and its run is made again.

    Args:
        path: the file; made with the first run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._keys = {str(record["key"]) for record in self}

    def __contains__(self, specification: Mapping[str, object]) -> bool:
        """Whether this very run is there."""
        return key_of(specification) in self._keys

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every whole record, in the order they were written."""
        if not self.path.exists():
            return
        lines = self._lines()
        for number, line in enumerate(lines, start=1):
            try:
                record = parse_json(line)
            except ValueError as error:
                if number < len(lines) or not line.startswith(_BEGINNING[: len(line)]):
                    raise ForeignFileError(f"{self.path}, line {number}, is no JSON: {error}.") from error
                logger.warning("%s ends in half a line; that run will be made again.", self.path)
                return
            if not isinstance(record, dict) or not all(isinstance(record.get(key), k) for key, k in _KINDS.items()):
                raise ForeignFileError(f"{self.path}, line {number}, is not a run. Name another file.")
            yield record

    def _lines(self) -> list[str]:
        try:
            return read_whole(self.path, MOST_JSON_BYTES).decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ForeignFileError(f"{self.path} is no file of runs: {error}. Name another file.") from error

    def add(self, specification: Mapping[str, object], result: Mapping[str, object]) -> None:
        """Append a run."""
        key = key_of(specification)
        record = {"key": key, "specification": dict(specification), "result": dict(result)}
        line = json.dumps(record, allow_nan=False) + "\n"
        try:
            _drop_half_line(self.path)
            with self.path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(f"Could not write {self.path}: {error}.") from error
        self._keys.add(key)


def _drop_half_line(path: Path) -> None:
    """Cut off what a kill left of a line, so that the next one begins on its own."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
    os.truncate(path, whole)
