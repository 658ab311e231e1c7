"""Aggregation of run results into table values: means, standard deviations, divergence counts and comparisons."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regtta.methods import SSA
from regtta.persistence import to_dict
from regtta_bench.paper import SMALLER_IS_BETTER, CellSpec, Part, TableSpec
from regtta_bench.sweep.run_keys import without_revisions
from regtta_bench.sweep.run_specs import RunSpec, SweepPlan, reference_cells
from regtta_bench.sweep.store import compute_key
from regtta_bench.tables.comparison import Difference, best_methods, paired_difference

_FIELD = {
    "R2": "r2",
    "RMSE": "rmse",
    "MAE": "mae",
    "accuracy": "accuracy",
    "valid_dimensions": "valid",
    "subspace_dimensions": "rank",
    "correlation": "correlation",
}

ResultsByKey = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class CellValue:
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
class ComparisonTable:
    """Comparisons of all methods by one score in one setting.

    Attributes:
        title: the score, protocol and setting.
        ssa: description of the reference SSA with its non-default options.
        rows: one comparison per method.
    """

    title: str
    ssa: str
    rows: tuple[Comparison, ...]


@dataclass(frozen=True)
class FilledTable:
    """A table filled with values.

    Attributes:
        table_spec: specification of the table.
        values: values by row and column; None where the specification has no cell.
        comparisons: comparison of each value with SSA and the source model; None where the specification has no cell or
            the score is a property of the source model.
        comparison_tables: comparisons by the main score of each setting.
        sources: number of source models by setting.
        seeds: number of adaptation seeds per source model.
    """

    table_spec: TableSpec
    values: tuple[tuple[CellValue | None, ...], ...]
    comparisons: tuple[tuple[Comparison | None, ...], ...]
    comparison_tables: tuple[ComparisonTable, ...]
    sources: Mapping[str, int]
    seeds: int


def fill_table(table_spec: TableSpec, plan: SweepPlan, records: Iterable[Mapping[str, Any]]) -> FilledTable:
    """Return ``table_spec`` filled with the results in ``records``, the lines of a run store."""
    records = list(records)
    results = {str(record["key"]): record["result"] for record in records}
    known = frozenset(_unrevised_key(record["specification"]) for record in records)
    cells = dict.fromkeys(table_spec.cells())
    wanted = dict.fromkeys([*cells, *(reference for cell in cells for reference in reference_cells(cell))])
    values = {cell: _aggregate_cell(cell, plan, results, known) for cell in wanted}
    best = _best_cells(values, list(cells))
    settings = {cell.setting.name: cell.setting for cell in cells}
    compared = [(cell, _compare_cell(name, cell, values)) for name, cell in _named_cells(table_spec)]
    comparisons = dict(compared)
    return FilledTable(
        table_spec=table_spec,
        values=tuple(
            tuple(None if cell is None else replace(values[cell], best=cell in best) for cell in row.cells)
            for row in table_spec.rows
        ),
        comparisons=tuple(
            tuple(None if cell is None else comparisons.get(cell) for cell in row.cells) for row in table_spec.rows
        ),
        comparison_tables=tuple(_make_comparison_tables(compared)),
        sources={name: len(plan.source_seed_range(setting)) for name, setting in settings.items()},
        seeds=plan.seeds,
    )


def _aggregate_cell(cell: CellSpec, plan: SweepPlan, results: ResultsByKey, known: Collection[str]) -> CellValue:
    """Aggregate the runs of a cell: the mean over its parts for each source model and adaptation seed.

    ``known`` holds the revision-independent keys of all available runs; they tell outdated runs from missing ones.
    """
    by_source: dict[int, list[float]] = {}
    diverged: dict[str, bool] = {}  # by the key of an available run
    outdated: dict[str, bool] = {}  # by the key of a missing run: True if an older revision of it exists
    for source_seed in plan.source_seed_range(cell.setting):
        for seed in range(plan.seeds):
            scores = []
            for spec, part in plan.cell_runs(cell, source_seed, seed):
                key = compute_key(spec.to_dict())
                if key not in results:
                    outdated[key] = _unrevised_key(spec.to_dict()) in known
                    continue
                score = _run_score(cell, part, spec, results[key])
                diverged[key] = diverged.get(key, False) or bool(results[key].get("diverged")) or score is None
                scores.append(math.nan if score is None else score)
            if len(scores) == len(cell.parts):
                by_source.setdefault(source_seed, []).append(statistics.fmean(scores))
    means = {source: statistics.fmean(scores) for source, scores in by_source.items()}
    complete = not outdated and not any(diverged.values())
    return CellValue(
        by_source={} if outdated else means,
        sd=_standard_deviation(means, by_source) if complete else None,
        runs=len(diverged),
        diverged=sum(diverged.values()),
        missing=len(outdated),
        outdated=sum(outdated.values()),
    )


def _unrevised_key(specification: Mapping[str, object]) -> str:
    return compute_key({"run": without_revisions(specification)})


def _standard_deviation(means: Mapping[int, float], by_source: Mapping[int, list[float]]) -> float | None:
    """Return the sd over source models if there are several, else over adaptation seeds; None if these are equal."""
    if len(means) > 1:
        return statistics.stdev(means.values())
    among = [score for scores in by_source.values() for score in scores]
    return statistics.stdev(among) if len(set(among)) > 1 else None


def _run_score(cell: CellSpec, part: Part, spec: RunSpec, result: Mapping[str, Any]) -> float | None:
    name = _FIELD[cell.score]
    if spec.method_config is None:
        found = result[name]
    elif part.output is not None:
        found = result["outputs"][cell.protocol][part.output][name]
    else:
        found = result["scores"][cell.protocol][name]
    if found is None:
        return None
    return float(found) * (100 if cell.score == "accuracy" else 1)


def _best_cells(values: Mapping[CellSpec, CellValue], cells: list[CellSpec]) -> set[CellSpec]:
    """Return the cells not significantly worse than the best; the oracle and unpaired methods do not compete."""
    groups: dict[object, dict[str, CellSpec]] = {}
    for number, cell in enumerate(cells):
        rival = (
            cell.method_config is not None and cell.method_config.paired and not cell.method_config.method.takes_targets
        )
        if rival and values[cell].mean is not None:
            groups.setdefault(cell.group, {})[str(number)] = cell
    best: set[CellSpec] = set()
    for rivals in groups.values():
        scores = {name: values[cell].by_source for name, cell in rivals.items()}
        larger_is_better = next(iter(rivals.values())).score not in SMALLER_IS_BETTER
        # A single source model supports no claim about significance.
        if len(rivals) > 1 and all(len(by_source) > 1 for by_source in scores.values()):
            best |= {rivals[name] for name in best_methods(scores, larger_is_better=larger_is_better)}
    return best


def _make_comparison_tables(compared: Sequence[tuple[CellSpec, Comparison]]) -> Iterable[ComparisonTable]:
    """Yield the comparisons of each setting by its main score: the first one averaged over the most parts."""
    seen: dict[tuple[str, str], CellSpec] = {}
    for cell, _ in compared:
        key = (cell.setting.name, cell.task)
        if key not in seen or len(cell.parts) > len(seen[key].parts):
            seen[key] = cell
    for chosen in seen.values():
        rows = tuple(comparison for cell, comparison in compared if cell.group == chosen.group)
        title = f"{chosen.score} {chosen.protocol}, {chosen.setting.name}"
        yield ComparisonTable(title, _describe_ssa(chosen), rows)


def _describe_ssa(cell: CellSpec) -> str:
    reference = reference_cells(cell)[0].method_config
    if reference is None:
        return ""
    defaults, chosen = to_dict(SSA.from_paper()), to_dict(reference.method)
    changed = {name: value for name, value in chosen.items() if value != defaults.get(name)}
    options = {"k": chosen["k"]} | changed
    return f"SSA.from_paper({', '.join(f'{name}={value!r}' for name, value in options.items())})"


def _named_cells(table_spec: TableSpec) -> Iterable[tuple[str, CellSpec]]:
    """Yield every cell with a method and its display name."""
    for row in table_spec.rows:
        groups = [cell.group for cell in row.cells if cell is not None]
        several = len(set(groups)) < len(groups)  # comparable cells in one row: its columns differ in the method
        for column, cell in zip(table_spec.columns, row.cells, strict=True):
            if cell is not None and cell.method_config is not None:
                yield (column if several else row.name), cell


def _compare_cell(name: str, cell: CellSpec, values: Mapping[CellSpec, CellValue]) -> Comparison:
    own = cell.method_config is not None and not cell.method_config.paired
    scores = {} if own else _complete_scores(values[cell])
    to_ssa, to_source = (
        None
        if reference.method_config == cell.method_config
        else paired_difference(scores, _complete_scores(values[reference]))
        for reference in reference_cells(cell)
    )
    return Comparison(name, to_ssa, to_source, own)


def _complete_scores(value: CellValue) -> Mapping[int, float]:
    return {} if value.mean is None else value.by_source
