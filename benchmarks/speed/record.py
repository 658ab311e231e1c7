"""What has been measured, kept as one JSON file that is whole at any moment."""

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
    """The findings of one machine.

    Attributes:
        made_with: device and versions, the same for all findings.
        findings: by case.
    """

    made_with: Mapping[str, Any]
    findings: Mapping[str, Findings] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        cases = {name: found.plain() for name, found in self.findings.items()}
        return {"format": FORMAT, "made_with": dict(self.made_with), "cases": cases}

    def adding(self, name: str, found: Findings) -> "Record":
        """With the findings of one case more."""
        return Record(self.made_with, {**self.findings, name: found})


def made_with(bench: Bench) -> dict[str, Any]:
    """What the numbers of a run depend on."""
    own = {"device": device_name(bench.device), "quick": bench.quick, **software_versions()}
    if bench.on_gpu:
        return own | {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # type: ignore[no-untyped-call]
    return own | {"processor": platform.machine(), "cores": os.cpu_count(), "threads": bench.threads}


def read(path: Path) -> Record:
    """The record in a file."""
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
    """Keep ``record`` in a file, in one move."""
    text = json.dumps(record.plain(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")


def resume_record(bench: Bench, *, force: bool) -> Record:
    """What an earlier run left in the bench's folder, as long as it was made with the same; else an empty record."""
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
