"""Runs as tables need them: read from the lines of a store, and chosen among."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regtta.experiments.stress.specs import is_current


@dataclass(frozen=True)
class Result:
    """What came of one run.

    Attributes:
        kind: of the stream.
        part: the shift in it; empty for kinds of no one part.
        arm: name of the method.
        guards: name of the guards.
        batch_size: samples a step.
        seed: of the source model.
        r2: online, over the whole stream; NaN where it is not finite.
        source_r2: the source model's on the same stream.
        slices: R² along the stream; NaN where it is not finite.
        samples: of the stream.
        batches: steps in all.
        learned: steps that were learned from.
        first_learned: the first of them, from 1; None where there is none.
        diverged: what was not finite; empty for a run that went well.
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
        """Over the source model; NaN where one of both is not finite."""
        return self.r2 - self.source_r2

    @property
    def lost(self) -> bool:
        """Whether it diverged, so that its score means nothing."""
        return bool(self.diverged) or not math.isfinite(self.r2)


@dataclass(frozen=True)
class Results:
    """The runs of one setting.

    Attributes:
        setting: its name.
        runs: those that would be made today.
        left_out: how many lines are of another training, method or guards than today's.
        devices: that they were made on.
        versions: that they were made with.
    """

    setting: str
    runs: tuple[Result, ...]
    left_out: int
    devices: tuple[str, ...]
    versions: tuple[str, ...]

    def of(self, arm: str, kind: str, guards: str) -> tuple[Result, ...]:
        """All runs of a method with its guards on a kind of stream."""
        return self._by_place.get((arm, kind, guards), ())

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str], tuple[Result, ...]]:
        places: dict[tuple[str, str, str], list[Result]] = {}
        for run in self.runs:
            places.setdefault((run.arm, run.kind, run.guards), []).append(run)
        return {place: tuple(runs) for place, runs in places.items()}

    def there(self, field: str) -> tuple[Any, ...]:
        """Every value that ``field`` has among the runs."""
        return tuple(dict.fromkeys(getattr(run, field) for run in self.runs))

    @property
    def shifts(self) -> str:
        """Their names, in words."""
        names = [part for part in self.there("part") if part]
        return f"the shift {names[0]}" if len(names) == 1 else f"the shifts {', '.join(names)}" if names else "no shift"


def results_of(records: Iterable[Mapping[str, Any]], setting: str) -> Results:
    """The runs of ``setting`` among the records of a store."""
    mine = [record for record in records if record["specification"].get("setting") == setting]
    used = [record for record in mine if is_current(record)]
    made = [record["result"] for record in used]
    return Results(
        setting,
        tuple(sorted(map(_result, used), key=_place)),
        len(mine) - len(used),
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


def _place(run: Result) -> tuple[object, ...]:
    """Runs in an order of their own: that of the lines depends on which process was first."""
    return (run.seed, run.kind, run.part, run.arm, run.guards, run.batch_size, run.samples)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
