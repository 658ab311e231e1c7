"""Files of diagnostics: one JSON object a line, one line a step."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from regtta.files import written_whole
from regtta.steps import Step


class DiagnosticsWriter:
    """Writes steps to ``file`` as they come."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, step: Step) -> None:
        """Add a step."""
        self._file.write(json.dumps(diagnostics_of(step), allow_nan=False) + "\n")


@contextmanager
def diagnostics_file(path: Path) -> Iterator[DiagnosticsWriter]:
    """A writer of diagnostics to ``path``, which appears whole when the block ends well."""
    with written_whole(path) as draft, draft.open("w", encoding="utf-8") as file:
        yield DiagnosticsWriter(file)


def diagnostics_of(step: Step) -> dict[str, object]:
    """What is told of a step, in values that JSON has: numbers that are not finite are ``None``."""
    told = step.diagnostics
    return {
        "index": step.index,
        "samples": len(step.predictions),
        "excluded": len(step.excluded_rows),
        "loss": _finite(told.loss),
        "gradient_norm": _finite(told.gradient_norm),
        "displacement": _finite(told.displacement),
        "learned": told.verdict.learned,
        "reason": told.verdict.reason,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
