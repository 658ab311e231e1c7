"""Aggregation of run results into table values: means, standard deviations, divergence counts and comparisons."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regtta.methods import SSA
from regtta.persistence import to_dict
from regtta_bench.paper import SMALLER_IS_BETTER, Cell, Layout, Part
from regtta_bench.sweep.run_keys import without_revisions
from regtta_bench.sweep.run_specs import Plan, RunSpec, references
from regtta_bench.sweep.store import key_of
from regtta_bench.tables.comparison import Difference, best_of, paired_difference

_FIELD = {
    "R2": "r2",
    "RMSE": "rmse",
    "MAE": "mae",
    "accuracy": "accuracy",
    "valid_dimensions": "valid",
    "subspace_dimensions": "rank",
    "correlation": "correlation",
}

Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Value:
    """Aggregated result of a cell.

    Attributes:
        by_source: mean over adaptation seeds and parts, by seed of the source model; empty if a run is missing.
        sd: standard deviation over source models, or over adaptation seeds if there is a single source model; None
            if runs are missing, diverged or do not vary.
        runs: number of available runs.
        diverged: number of available runs that diverged.
        missing: number of missing runs.
        best: True if no comparable cell is significantly better.
        outdated: number of missing runs for which a run by an older revision of the method or training exists.
    """

    by_source: Mapping[int, float]
    sd: float | None
    runs: int
    diverged: int
    missing: int
    best: bool = False
    outdated: int = 0

    @property
    def mean(self) -> float | None:
        """Mean over source models; None if a run is missing or diverged."""
        complete = self.by_source and not self.diverged and not self.missing
        return statistics.fmean(self.by_source.values()) if complete else None


@dataclass(frozen=True)
class Comparison:
    """Paired differences of a method to SSA and to the unadapted source model.

    Attributes:
        row: name of the method's row, or of its column in rows whose columns differ in the method.
        to_ssa: score minus SSA's score; None for SSA itself.
        to_source: score minus the source model's score; None for the source model itself.
        own_source: True if the method has source models of its own and cannot be paired.
    """

    row: str
    to_ssa: Difference | None
    to_source: Difference | None
    own_source: bool = False


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of all methods by one score in one setting.

    Attributes:
        title: the score, protocol and setting.
        ssa: description of the reference SSA with its non-default options.
        lines: one comparison per method.
    """

    title: str
    ssa: str
    lines: tuple[Comparison, ...]


@dataclass(frozen=True)
class Filled:
    """A table filled with values.

    Attributes:
        layout: the table's layout.
        values: values by row and column; None where the layout has no cell.
        gaps: differences of each value to SSA and to the source model; None where the layout has no cell or the score
            is a property of the source model.
        comparisons: comparisons by the main score of each setting.
        sources: number of source models by setting.
        seeds: number of adaptation seeds per source model.
    """

    layout: Layout
    values: tuple[tuple[Value | None, ...], ...]
    gaps: tuple[tuple[Comparison | None, ...], ...]
    comparisons: tuple[Comparisons, ...]
    sources: Mapping[str, int]
    seeds: int


def fill(layout: Layout, plan: Plan, records: Iterable[Mapping[str, Any]]) -> Filled:
    """Return ``layout`` filled with the results in ``records``, the lines of a run store."""
    records = list(records)
    results = {str(record["key"]): record["result"] for record in records}
    ever = frozenset(_unrevised(record["specification"]) for record in records)
    cells = dict.fromkeys(layout.cells())
    wanted = dict.fromkeys([*cells, *(reference for cell in cells for reference in references(cell))])
    values = {cell: _value(cell, plan, results, ever) for cell in wanted}
    best = _best(values, list(cells))
    settings = {cell.setting.name: cell.setting for cell in cells}
    compared = [(cell, _comparison(name, cell, values)) for name, cell in _named(layout)]
    gaps = dict(compared)
    return Filled(
        layout=layout,
        values=tuple(
            tuple(None if cell is None else replace(values[cell], best=cell in best) for cell in row.cells)
            for row in layout.rows
        ),
        gaps=tuple(tuple(None if cell is None else gaps.get(cell) for cell in row.cells) for row in layout.rows),
        comparisons=tuple(_comparisons(compared)),
        sources={name: len(plan.sources(setting)) for name, setting in settings.items()},
        seeds=plan.seeds,
    )


def _value(cell: Cell, plan: Plan, results: Results, ever: Collection[str]) -> Value:
    """Aggregate the runs of a cell: the mean over its parts for each source model and adaptation seed.

    ``ever`` holds the revision-independent keys of all available runs; they tell outdated runs from missing ones.
    """
    by_source: dict[int, list[float]] = {}
    diverged: dict[str, bool] = {}  # by the key of an available run
    outdated: dict[str, bool] = {}  # by the key of a missing run: True if an older revision of it exists
    for source_seed in plan.sources(cell.setting):
        for seed in range(plan.seeds):
            scores = []
            for spec, part in plan.runs(cell, source_seed, seed):
                key = key_of(spec.plain())
                if key not in results:
                    outdated[key] = _unrevised(spec.plain()) in ever
                    continue
                score = _score(cell, part, spec, results[key])
                diverged[key] = diverged.get(key, False) or bool(results[key].get("diverged")) or score is None
                scores.append(math.nan if score is None else score)
            if len(scores) == len(cell.parts):
                by_source.setdefault(source_seed, []).append(statistics.fmean(scores))
    means = {source: statistics.fmean(scores) for source, scores in by_source.items()}
    complete = not outdated and not any(diverged.values())
    return Value(
        by_source={} if outdated else means,
        sd=_spread(means, by_source) if complete else None,
        runs=len(diverged),
        diverged=sum(diverged.values()),
        missing=len(outdated),
        outdated=sum(outdated.values()),
    )


def _unrevised(specification: Mapping[str, object]) -> str:
    return key_of({"run": without_revisions(specification)})


def _spread(means: Mapping[int, float], by_source: Mapping[int, list[float]]) -> float | None:
    """Return the sd over source models if there are several, else over adaptation seeds; None if these are equal."""
    if len(means) > 1:
        return statistics.stdev(means.values())
    among = [score for scores in by_source.values() for score in scores]
    return statistics.stdev(among) if len(set(among)) > 1 else None


def _score(cell: Cell, part: Part, spec: RunSpec, result: Mapping[str, Any]) -> float | None:
    name = _FIELD[cell.score]
    if spec.arm is None:
        found = result[name]
    elif part.output is not None:
        found = result["outputs"][cell.protocol][part.output][name]
    else:
        found = result["scores"][cell.protocol][name]
    if found is None:
        return None
    return float(found) * (100 if cell.score == "accuracy" else 1)


def _best(values: Mapping[Cell, Value], cells: list[Cell]) -> set[Cell]:
    """Return the cells not significantly worse than the best; the oracle and unpaired methods do not compete."""
    groups: dict[object, dict[str, Cell]] = {}
    for number, cell in enumerate(cells):
        rival = cell.arm is not None and cell.arm.paired and not cell.arm.method.takes_targets
        if rival and values[cell].mean is not None:
            groups.setdefault(cell.group, {})[str(number)] = cell
    best: set[Cell] = set()
    for rivals in groups.values():
        scores = {name: values[cell].by_source for name, cell in rivals.items()}
        larger = next(iter(rivals.values())).score not in SMALLER_IS_BETTER
        # A single source model supports no claim about significance.
        if len(rivals) > 1 and all(len(by_source) > 1 for by_source in scores.values()):
            best |= {rivals[name] for name in best_of(scores, larger=larger)}
    return best


def _comparisons(compared: Sequence[tuple[Cell, Comparison]]) -> Iterable[Comparisons]:
    """Yield the comparisons of each setting by its main score: the first one averaged over the most parts."""
    seen: dict[tuple[str, str], Cell] = {}
    for cell, _ in compared:
        key = (cell.setting.name, cell.task)
        if key not in seen or len(cell.parts) > len(seen[key].parts):
            seen[key] = cell
    for chosen in seen.values():
        lines = tuple(comparison for cell, comparison in compared if cell.group == chosen.group)
        title = f"{chosen.score} {chosen.protocol}, {chosen.setting.name}"
        yield Comparisons(title, _ssa(chosen), lines)


def _ssa(cell: Cell) -> str:
    reference = references(cell)[0].arm
    if reference is None:
        return ""
    defaults, chosen = to_dict(SSA()), to_dict(reference.method)
    changed = {name: value for name, value in chosen.items() if value != defaults.get(name)}
    options = {"k": chosen["k"]} | changed
    return f"SSA({', '.join(f'{name}={value!r}' for name, value in options.items())})"


def _named(layout: Layout) -> Iterable[tuple[str, Cell]]:
    """Yield every cell with a method and its display name."""
    for row in layout.rows:
        groups = [cell.group for cell in row.cells if cell is not None]
        several = len(set(groups)) < len(groups)  # comparable cells in one row: its columns differ in the method
        for column, cell in zip(layout.columns, row.cells, strict=True):
            if cell is not None and cell.arm is not None:
                yield (column if several else row.name), cell


def _comparison(name: str, cell: Cell, values: Mapping[Cell, Value]) -> Comparison:
    own = cell.arm is not None and not cell.arm.paired
    scores = {} if own else _complete(values[cell])
    to_ssa, to_source = (
        None if reference.arm == cell.arm else paired_difference(scores, _complete(values[reference]))
        for reference in references(cell)
    )
    return Comparison(name, to_ssa, to_source, own)


def _complete(value: Value) -> Mapping[int, float]:
    return {} if value.mean is None else value.by_source
