"""Diagnostics files: JSON lines with one object per step."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from regtta.files import written_whole
from regtta.steps import Step


class DiagnosticsWriter:
    """Writer of steps as JSON lines to ``file``."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, step: Step) -> None:
        """Append a step."""
        self._file.write(json.dumps(diagnostics_of(step), allow_nan=False) + "\n")


@contextmanager
def diagnostics_file(path: Path) -> Iterator[DiagnosticsWriter]:
    """Yield a writer to ``path``; the file appears once the block has succeeded."""
    with written_whole(path) as draft, draft.open("w", encoding="utf-8") as file:
        yield DiagnosticsWriter(file)


def diagnostics_of(step: Step) -> dict[str, object]:
    """Return the diagnostics of ``step`` as JSON-compatible values; non-finite numbers become ``None``."""
    diagnostics = step.diagnostics
    return {
        "index": step.index,
        "samples": len(step.predictions),
        "excluded": len(step.excluded_rows),
        "loss": _finite(diagnostics.loss),
        "gradient_norm": _finite(diagnostics.gradient_norm),
        "displacement": _finite(diagnostics.displacement),
        "learned": diagnostics.verdict.learned,
        "reason": diagnostics.verdict.reason,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
