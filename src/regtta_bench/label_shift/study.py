"""The study of one data set over several source models, and its file of JSON lines."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regtta.errors import InvalidFileError
from regtta.persistence import atomic_write, device_name, software_versions
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.label_shift.cases import SAMPLE_COUNTS
from regtta_bench.label_shift.label_shift_tables import ABOUT
from regtta_bench.label_shift.label_shift_testbeds import LabelShiftTestbed
from regtta_bench.label_shift.measurements import HARM_EVERY, measure_cases
from regtta_bench.label_shift.method_comparison import STREAM_LENGTH, compare_methods
from regtta_bench.sweep.log_levels import quiet_loggers

STUDY_SOURCE_MODELS = 6
COMPARISON_SOURCE_MODELS = 3  # first source models only, because every method on every stream is expensive
_QUICK_COUNTS, _QUICK_HARM, _QUICK_STREAM = (32, 64), 40, 64


def run_study(
    data: str,
    seeds: Sequence[int],
    make: Callable[[int], LabelShiftTestbed],
    *,
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Run the study on one CPU thread and return its records; the first describes the configuration.

    Args:
        data: name of the data set.
        seeds: seeds of the source models.
        make: function from a seed to a source model.
        quick: smoke run, with too few samples for meaningful results.
        progress: callback with a progress message after each source model.
    """
    lines: list[dict[str, Any]] = []
    fingerprints = {}
    # The warning that k is reduced to the rank would be repeated for every adapter.
    with one_thread(), quiet_loggers("regtta.statistics.source"):
        for place, seed in enumerate(seeds):
            testbed = make(seed)
            fingerprints[str(seed)] = testbed.fingerprint
            lines += measure_cases(
                testbed,
                counts=_QUICK_COUNTS if quick else SAMPLE_COUNTS,
                harm_every=_QUICK_HARM if quick else HARM_EVERY,
            )
            if place < (1 if quick else COMPARISON_SOURCE_MODELS):
                lines += compare_methods(testbed, _QUICK_STREAM if quick else STREAM_LENGTH)
            if progress:
                progress(f"{data}: {place + 1} of {len(seeds)} source models")
    about = {
        "record": ABOUT,
        "data": data,
        "seeds": list(seeds),
        "quick": quick,
        "versions": software_versions(),
        "device": device_name("cpu"),
        "fingerprints": fingerprints,
    }
    return [about, *lines]


def write_records(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write one JSON object per line, atomically."""
    text = "".join(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n" for line in lines)
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read a file written by :func:`write_records`."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if lines[0]["record"] != ABOUT:
            raise ValueError("the first line is not a description of the study")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InvalidFileError(f"{path} is not a file of regtta label-shift: {error}.") from error
    return lines
