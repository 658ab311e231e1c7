"""Results of the benchmark, parsed from the lines of a run store and grouped for the tables."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regtta_bench.stress.stress_specs import is_current


@dataclass(frozen=True)
class Result:
    """Result of one run.

    Attributes:
        kind: kind of stream.
        part: name of the shift; empty for kinds that are not drawn per shift.
        arm: name of the method.
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
    arm: str
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
    def lost(self) -> bool:
        """True if the run diverged, so that its score is meaningless."""
        return bool(self.diverged) or not math.isfinite(self.r2)


@dataclass(frozen=True)
class Results:
    """Results of all runs in one setting.

    Attributes:
        setting: name of the setting.
        runs: results of the current training, methods and guards.
        left_out: number of lines that were dropped, as they belong to another training, method or guards.
        devices: devices that the runs were made on.
        versions: software versions that the runs were made with.
    """

    setting: str
    runs: tuple[Result, ...]
    left_out: int
    devices: tuple[str, ...]
    versions: tuple[str, ...]

    def of(self, arm: str, kind: str, guards: str) -> tuple[Result, ...]:
        """Return all runs of a method with given guards on a kind of stream."""
        return self._by_place.get((arm, kind, guards), ())

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str], tuple[Result, ...]]:
        places: dict[tuple[str, str, str], list[Result]] = {}
        for run in self.runs:
            places.setdefault((run.arm, run.kind, run.guards), []).append(run)
        return {place: tuple(runs) for place, runs in places.items()}

    def there(self, field: str) -> tuple[Any, ...]:
        """Return the distinct values of ``field`` among the runs."""
        return tuple(dict.fromkeys(getattr(run, field) for run in self.runs))

    @property
    def shifts(self) -> str:
        """Names of the shifts as a phrase."""
        names = [part for part in self.there("part") if part]
        return f"the shift {names[0]}" if len(names) == 1 else f"the shifts {', '.join(names)}" if names else "no shift"


def results_of(records: Iterable[Mapping[str, Any]], setting: str) -> Results:
    """Return the results of ``setting`` among the records of a run store."""
    of_setting = [record for record in records if record["specification"].get("setting") == setting]
    used = [record for record in of_setting if is_current(record)]
    made = [record["result"] for record in used]
    return Results(
        setting,
        tuple(sorted(map(_result, used), key=_sort_key)),
        len(of_setting) - len(used),
        tuple(sorted({str(result["device"]) for result in made})),
        tuple(sorted({", ".join(f"{name} {version}" for name, version in r["versions"].items()) for r in made})),
    )


def _result(record: Mapping[str, Any]) -> Result:
    about, found = record["specification"], record["result"]
    return Result(
        **{name: about[name] for name in ("kind", "part", "arm", "guards", "batch_size")},
        seed=about["source"]["seed"],
        r2=_number(found["r2"]),
        source_r2=_number(found["source_r2"]),
        slices=tuple(map(_number, found["slices"])),
        **{name: found[name] for name in ("samples", "batches", "learned", "first_learned", "diverged")},
    )


def _sort_key(run: Result) -> tuple[object, ...]:
    """Return a deterministic sort key; the order of the lines depends on the timing of processes."""
    return (run.seed, run.kind, run.part, run.arm, run.guards, run.batch_size, run.samples)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
