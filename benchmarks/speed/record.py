"""Record of all findings, stored as one JSON file that is written atomically."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.bench import Bench
from benchmarks.speed.findings import Findings
from regtta.errors import InvalidFileError, MismatchError
from regtta.persistence import atomic_write, device_name, software_versions

FORMAT = 1
FILE = "speed.json"


@dataclass(frozen=True)
class Record:
    """Findings of one machine.

    Attributes:
        made_with: device and versions, the same for all findings.
        findings: findings by case.
    """

    made_with: Mapping[str, Any]
    findings: Mapping[str, Findings] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the record as a dictionary for JSON."""
        cases = {name: found.plain() for name, found in self.findings.items()}
        return {"format": FORMAT, "made_with": dict(self.made_with), "cases": cases}

    def adding(self, name: str, found: Findings) -> "Record":
        """Return a copy with the findings of one more case."""
        return Record(self.made_with, {**self.findings, name: found})


def made_with(bench: Bench) -> dict[str, Any]:
    """Return the device, versions and options that the results of a run depend on."""
    own = {"device": device_name(bench.device), "quick": bench.quick, **software_versions()}
    if bench.on_gpu:
        return own | {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # type: ignore[no-untyped-call]
    return own | {"processor": platform.machine(), "cores": os.cpu_count(), "threads": bench.threads}


def read(path: Path) -> Record:
    """Read the record from a file."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        found = {name: Findings.from_plain(case) for name, case in plain["cases"].items()}
        known = plain["format"] == FORMAT
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise InvalidFileError(f"{path} is not a record of this version. Measure into another folder, or remove it.")
    return Record(plain["made_with"], found)


def write(record: Record, path: Path) -> None:
    """Write ``record`` to a file atomically."""
    text = json.dumps(record.plain(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")


def resume_record(bench: Bench, *, force: bool) -> Record:
    """Return the record in the bench's folder, or an empty one if there is none.

    A record of another device, version or option raises an error, or is discarded with ``force``.
    """
    path, now = bench.out / FILE, made_with(bench)
    if not path.exists():
        return Record(now)
    found = read(path)
    if found.made_with == now:
        return found
    if force:
        return Record(now)
    apart = sorted(key for key in now.keys() | found.made_with.keys() if now.get(key) != found.made_with.get(key))
    raise MismatchError(
        f"{path} was made with another {', '.join(apart)}, and times of two do not compare. Choose another --out, or "
        "start anew with --force."
    )
