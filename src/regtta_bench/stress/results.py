"""Results of the benchmark, parsed from the lines of a run store and grouped for the tables."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regtta_bench.stress.stress_specs import is_current_run


@dataclass(frozen=True)
class StressResult:
    """Result of one run.

    Attributes:
        kind: kind of stream.
        part: name of the shift; empty for kinds that are not drawn per shift.
        method_name: name of the method.
        guards: name of the guards.
        batch_size: samples per step.
        seed: seed of the source model.
        r2: online R² over the whole stream; NaN if not finite.
        source_r2: R² of the source model on the same stream; NaN if not finite.
        slices: R² in slices along the stream; NaN where not finite.
        samples: number of samples in the stream.
        batches: number of batches in the stream.
        learned: number of batches with an update.
        first_learned: number of the first of them, counted from 1; None if there is none.
        diverged: description of what was not finite; empty if the run did not diverge.
    """

    kind: str
    part: str
    method_name: str
    guards: str
    batch_size: int
    seed: int
    r2: float
    source_r2: float
    slices: tuple[float, ...]
    samples: int
    batches: int
    learned: int
    first_learned: int | None
    diverged: str

    @property
    def gain(self) -> float:
        """R² minus that of the source model; NaN if either is not finite."""
        return self.r2 - self.source_r2

    @property
    def has_diverged(self) -> bool:
        """True if the run diverged, so that its score is meaningless."""
        return bool(self.diverged) or not math.isfinite(self.r2)


@dataclass(frozen=True)
class StressResults:
    """Results of all runs in one setting.

    Attributes:
        setting: name of the setting.
        runs: results of the current training, methods and guards.
        dropped: number of lines that were dropped, as they belong to another training, method or guards.
        devices: devices that the runs were made on.
        versions: software versions that the runs were made with.
    """

    setting: str
    runs: tuple[StressResult, ...]
    dropped: int
    devices: tuple[str, ...]
    versions: tuple[str, ...]

    def select(self, method_name: str, kind: str, guards: str) -> tuple[StressResult, ...]:
        """Return all runs of a method with given guards on a kind of stream."""
        return self._by_group.get((method_name, kind, guards), ())

    @cached_property
    def _by_group(self) -> dict[tuple[str, str, str], tuple[StressResult, ...]]:
        groups: dict[tuple[str, str, str], list[StressResult]] = {}
        for run in self.runs:
            groups.setdefault((run.method_name, run.kind, run.guards), []).append(run)
        return {group: tuple(runs) for group, runs in groups.items()}

    def distinct(self, field: str) -> tuple[Any, ...]:
        """Return the distinct values of ``field`` among the runs."""
        return tuple(dict.fromkeys(getattr(run, field) for run in self.runs))

    @property
    def shifts(self) -> str:
        """Names of the shifts as a phrase."""
        names = [part for part in self.distinct("part") if part]
        return f"the shift {names[0]}" if len(names) == 1 else f"the shifts {', '.join(names)}" if names else "no shift"


def parse_results(records: Iterable[Mapping[str, Any]], setting: str) -> StressResults:
    """Return the results of ``setting`` among the records of a run store."""
    of_setting = [record for record in records if record["specification"].get("setting") == setting]
    used = [record for record in of_setting if is_current_run(record)]
    made = [record["result"] for record in used]
    return StressResults(
        setting,
        tuple(sorted(map(_result, used), key=_sort_key)),
        len(of_setting) - len(used),
        tuple(sorted({str(result["device"]) for result in made})),
        tuple(sorted({", ".join(f"{name} {version}" for name, version in r["versions"].items()) for r in made})),
    )


def _result(record: Mapping[str, Any]) -> StressResult:
    specification, result = record["specification"], record["result"]
    return StressResult(
        **{name: specification[name] for name in ("kind", "part", "guards", "batch_size")},
        method_name=specification["arm"],
        seed=specification["source"]["seed"],
        r2=_number(result["r2"]),
        source_r2=_number(result["source_r2"]),
        slices=tuple(map(_number, result["slices"])),
        **{name: result[name] for name in ("samples", "batches", "learned", "first_learned", "diverged")},
    )


def _sort_key(run: StressResult) -> tuple[object, ...]:
    """Return a deterministic sort key; the order of the lines depends on the timing of processes."""
    return (run.seed, run.kind, run.part, run.method_name, run.guards, run.batch_size, run.samples)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
