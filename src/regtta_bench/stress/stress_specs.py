"""Run specifications of the benchmark, and the plan that lists them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypedDict, Unpack

from regtta.guards import Guard, OutlierRows
from regtta.methods import Method
from regtta.persistence import to_dict
from regtta_bench.stress.streams import REDRAWN, STREAM_KINDS
from regtta_bench.stress.stress_settings import (
    ADAPTATION_METHODS,
    COMPARED_GUARDS,
    GATE_GUARDS,
    GUARDS,
    PLAIN_GUARDS,
    SOURCE_METHOD,
    STRESS_SETTINGS,
    StressSetting,
    StressSource,
)
from regtta_bench.sweep.run_keys import describe_method
from regtta_bench.sweep.store import compute_key

GATE_BATCH = 64
GATE_BATCHES = 10_000


@dataclass(frozen=True)
class StressSpec:
    """Specification of one run.

    Attributes:
        setting: name of the setting.
        source: specification of the source model.
        kind: kind of stream.
        part: name of the shift; empty for kinds that are not drawn per shift.
        method_name: name of the method.
        method: the method with its options.
        guards: name of the guards.
        batch_size: samples per step.
        length: most samples of the stream; 0 for all available ones.
    """

    setting: str
    source: StressSource
    kind: str
    part: str
    method_name: str
    method: Method
    guards: str
    batch_size: int
    length: int

    @property
    def target(self) -> str:
        """Identifier of the stream; runs on one stream are executed consecutively."""
        return f"{self.kind} {self.part}".strip()

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-serialisable key of the run."""
        return {
            "setting": self.setting,
            "source": self.source.to_dict(),
            "kind": self.kind,
            "part": self.part,
            "arm": self.method_name,
            "method": dict(_described(self.method)),
            "guards": self.guards,
            # A hash, since the guards' thresholds would make up half of the line.
            "guards_mark": _guards_hash(GUARDS[self.guards]),
            "batch_size": self.batch_size,
            "length": self.length,
        }


class StressMethod(TypedDict):
    """Names of a method and its guards, and the number of samples per step."""

    method_name: str
    guards: str
    batch_size: int


@dataclass(frozen=True)
class StressPlan:
    """Runs of a benchmark.

    Attributes:
        setting: the setting.
        source_models: number of source models.
        kinds: kinds of streams.
        method_names: names of the methods besides Source.
        parts: shifts, for the kinds drawn per shift; empty for all of the setting.
        batch_sizes: batch sizes.
        gate_batches: number of batches in the gate's clean stream; 0 for no runs with the gate.
    """

    setting: StressSetting
    source_models: int = 3
    kinds: tuple[str, ...] = tuple(STREAM_KINDS)
    method_names: tuple[str, ...] = ADAPTATION_METHODS
    parts: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (1, 8, 64)
    gate_batches: int = GATE_BATCHES

    def runs(self) -> tuple[StressSpec, ...]:
        """Return all distinct runs."""
        every = (spec for seed in range(self.source_models) for spec in (*self._streams(seed), *self._gate(seed)))
        return tuple(dict.fromkeys(every))

    def _streams(self, seed: int) -> Iterator[StressSpec]:
        for kind in self.kinds:
            for part in self._shifts() if STREAM_KINDS[kind].is_per_shift else ("",):
                yield from self._spec(
                    seed, kind, part, method_name=SOURCE_METHOD, guards=PLAIN_GUARDS, batch_size=GATE_BATCH
                )
                for method_name in self.method_names:
                    for size in self.batch_sizes:
                        for guards in COMPARED_GUARDS:
                            yield from self._spec(
                                seed, kind, part, method_name=method_name, guards=guards, batch_size=size
                            )

    def _gate(self, seed: int) -> Iterator[StressSpec]:
        if not self.gate_batches:
            return
        gated: StressMethod = {"method_name": "ssa", "guards": GATE_GUARDS, "batch_size": GATE_BATCH}
        yield from self._spec(seed, REDRAWN, "", **gated, length=self.gate_batches * GATE_BATCH)
        for part in self._shifts():
            yield from self._spec(seed, "iid", part, **gated)

    def _spec(
        self, seed: int, kind: str, part: str, *, length: int | None = None, **options: Unpack[StressMethod]
    ) -> Iterator[StressSpec]:
        """Yield the run if its method is supported in the setting."""
        spec = make_spec(self.setting, seed, kind, part, **options, length=length)
        if spec is not None:
            yield spec

    def _shifts(self) -> tuple[str, ...]:
        return self.parts or self.setting.parts


def make_spec(
    setting: StressSetting,
    seed: int,
    kind: str,
    part: str,
    *,
    length: int | None = None,
    **options: Unpack[StressMethod],
) -> StressSpec | None:
    """Return the specification of a run; None if its method is not supported in ``setting``.

    Args:
        setting: the setting.
        seed: seed of the source model.
        kind: kind of stream.
        part: name of the shift; empty for kinds that are not drawn per shift.
        length: most samples of the stream; by default the setting's.
        options: names of method and guards, and the batch size.

    Example:
        >>> options = {"method_name": "ssa", "guards": "safe", "batch_size": 8}
        >>> make_spec(STRESS_SETTINGS["california"], 0, "sorted", "near_bay", **options).method.k
        10
    """
    method = _method(setting, options["method_name"])
    if method is None:
        return None
    return StressSpec(
        setting=setting.name,
        source=setting.source(seed),
        kind=kind,
        part=part,
        method=method,
        length=setting.length if length is None else length,
        **options,
    )


# Cached: there are thousands of specifications, but only a few methods and guards.


@lru_cache
def _method(setting: StressSetting, method_name: str) -> Method | None:
    return setting.method(method_name)


@lru_cache
def _described(method: Method) -> dict[str, object]:
    return describe_method(method)


# Guards added after results had been committed. They are omitted from the key since they do not change these results:
# no sample of the streams is an outlier (runs record the number of excluded samples).
_GUARDS_ADDED_LATER = tuple(
    OutlierRows(factor=2.0, least=100.0, most=0.25, features=by_features) for by_features in (False, True)
)


@lru_cache
def _guards_hash(guards: tuple[Guard, ...]) -> str:
    return compute_key({"guards": [to_dict(guard) for guard in guards if guard not in _GUARDS_ADDED_LATER]})


def is_stress_run(specification: Mapping[str, Any]) -> bool:
    """Return True if a line of a run store belongs to this benchmark."""
    return {"setting", "kind", "part", "arm", "guards", "batch_size", "length"} <= specification.keys()


def is_current_run(record: Mapping[str, Any]) -> bool:
    """Return True if a record matches the current training, method and guards."""
    about = record["specification"]
    setting = STRESS_SETTINGS.get(about["setting"])
    if setting is None or about["guards"] not in GUARDS or about["arm"] not in (SOURCE_METHOD, *ADAPTATION_METHODS):
        return False
    options: StressMethod = {
        "method_name": about["arm"],
        "guards": about["guards"],
        "batch_size": about["batch_size"],
    }
    spec = make_spec(setting, about["source"]["seed"], about["kind"], about["part"], length=about["length"], **options)
    return spec is not None and compute_key(spec.to_dict()) == record["key"]
