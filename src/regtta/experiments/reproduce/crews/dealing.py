"""How runs are dealt out: in what order, and with how many threads."""

from collections.abc import Iterable, Sequence

from regtta.experiments.reproduce.roles import S, Spec
from regtta.experiments.sources import SMALL, KeptSource


def by_source(specs: Sequence[S]) -> list[list[S]]:
    """Groups that share a source model; in each, those of one target one after another, since they share its data."""
    groups: dict[KeptSource, dict[str, list[S]]] = {}
    for spec in specs:
        groups.setdefault(spec.source, {}).setdefault(spec.target, []).append(spec)
    return [[spec for target in targets.values() for spec in target] for targets in groups.values()]


def all_small(specs: Iterable[Spec]) -> bool:
    """Whether all models are so small that threads would only wait for each other."""
    return all(spec.source.model in SMALL for spec in specs)


def threads_of(specs: Iterable[Spec], cores: int) -> int:
    """Threads for a worker that has ``cores`` to itself."""
    return 1 if all_small(specs) else max(1, cores)
