"""Scheduling of runs: their order and the number of threads per worker."""

from collections.abc import Iterable, Sequence

from regtta.experiments.reproduce.roles import S, Spec
from regtta.experiments.sources import SMALL, KeptSource


def by_source(specs: Sequence[S]) -> list[list[S]]:
    """Group runs by source model; within a group, runs on one target are adjacent since they share its data."""
    groups: dict[KeptSource, dict[str, list[S]]] = {}
    for spec in specs:
        groups.setdefault(spec.source, {}).setdefault(spec.target, []).append(spec)
    return [[spec for target in targets.values() for spec in target] for targets in groups.values()]


def all_small(specs: Iterable[Spec]) -> bool:
    """Return True if all models are so small that several threads would slow them down."""
    return all(spec.source.model in SMALL for spec in specs)


def threads_of(specs: Iterable[Spec], cores: int) -> int:
    """Return the number of threads for a worker with ``cores`` cores to itself."""
    return 1 if all_small(specs) else max(1, cores)
