"""From the lines of runs to numbers in a table: means, deviations, what diverged, and what beats what."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regtta.experiments.comparison import Difference, best_of, paired_difference
from regtta.experiments.reproduce.layouts import SMALLER_IS_BETTER, Cell, Layout
from regtta.experiments.reproduce.settings import Part
from regtta.experiments.reproduce.specs import Plan, RunSpec, references
from regtta.experiments.specifying import without_revisions
from regtta.experiments.store import key_of
from regtta.methods import SSA
from regtta.options import described

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
    """What stands in a cell.

    Attributes:
        by_source: the mean over adaptation seeds and parts, by source model; empty where something is missing.
        sd: over source models; over adaptation seeds where there is one source model; None where there is one run.
        runs: how many are there.
        diverged: how many of them diverged.
        missing: how many are not there.
        best: whether nothing beats it by more than chance.
        outdated: for how many of the missing there is a run of an older revision of the method or of its training.
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
        """Over source models; None where something is missing or diverged."""
        whole = self.by_source and not self.diverged and not self.missing
        return statistics.fmean(self.by_source.values()) if whole else None


@dataclass(frozen=True)
class Comparison:
    """A method against the two it is compared with, on the same source models.

    Attributes:
        row: name of the method's row, and of its column where the columns differ in the method.
        to_ssa: its score less SSA's; None for SSA itself.
        to_source: its score less the source model's; None for that itself.
        own_source: whether it has source models of its own, and so cannot be paired.
    """

    row: str
    to_ssa: Difference | None
    to_source: Difference | None
    own_source: bool = False


@dataclass(frozen=True)
class Comparisons:
    """All methods of one kind of cell against the two they are compared with.

    Attributes:
        title: which score, where.
        ssa: SSA as it is run there, with the options that are not its defaults.
        lines: a method each.
    """

    title: str
    ssa: str
    lines: tuple[Comparison, ...]


@dataclass(frozen=True)
class Filled:
    """A table with its numbers.

    Attributes:
        layout: what it was to be.
        values: by row, then by column; None where the layout has nothing.
        gaps: of each value to SSA and to the source model; None for what is measured on source models alone.
        comparisons: those of the score that methods are judged by, one for each setting.
        sources: how many source models, by setting.
        seeds: adaptation seeds on each.
    """

    layout: Layout
    values: tuple[tuple[Value | None, ...], ...]
    gaps: tuple[tuple[Comparison | None, ...], ...]
    comparisons: tuple[Comparisons, ...]
    sources: Mapping[str, int]
    seeds: int


def fill(layout: Layout, plan: Plan, records: Iterable[Mapping[str, Any]]) -> Filled:
    """``layout`` with the numbers that ``records``, the lines of a store, hold."""
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
    """The numbers of a cell: for each source model and adaptation seed, the mean over the parts.

    ``ever`` are keys, revisions left out, of the runs that were made by any revision.
    """
    by_source: dict[int, list[float]] = {}
    met: dict[str, bool] = {}
    absent: dict[str, bool] = {}  # and whether an older revision made it
    for source_seed in plan.sources(cell.setting):
        for seed in range(plan.seeds):
            scores = []
            for spec, part in plan.runs(cell, source_seed, seed):
                key = key_of(spec.plain())
                if key not in results:
                    absent[key] = _unrevised(spec.plain()) in ever
                    continue
                score = _score(cell, part, spec, results[key])
                met[key] = met.get(key, False) or bool(results[key].get("diverged")) or score is None
                scores.append(math.nan if score is None else score)
            if len(scores) == len(cell.parts):
                by_source.setdefault(source_seed, []).append(statistics.fmean(scores))
    means = {source: statistics.fmean(scores) for source, scores in by_source.items()}
    whole = not absent and not any(met.values())
    sd = _spread(means, by_source) if whole else None
    lost = sum(met.values())
    return Value({} if absent else means, sd, len(met), lost, len(absent), outdated=sum(absent.values()))


def _unrevised(specification: Mapping[str, object]) -> str:
    return key_of({"run": without_revisions(specification)})


def _spread(means: Mapping[int, float], by_source: Mapping[int, list[float]]) -> float | None:
    """Over source models where there are several, else over adaptation seeds, unless those cannot matter."""
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
    """The cells that nothing comparable beats: neither the oracle nor what has its own source models takes part."""
    groups: dict[object, dict[str, Cell]] = {}
    for number, cell in enumerate(cells):
        rival = cell.arm is not None and cell.arm.paired and not cell.arm.method.takes_targets
        if rival and values[cell].mean is not None:
            groups.setdefault(cell.group, {})[str(number)] = cell
    best: set[Cell] = set()
    for rivals in groups.values():
        scores = {name: values[cell].by_source for name, cell in rivals.items()}
        larger = next(iter(rivals.values())).score not in SMALLER_IS_BETTER
        # Fewer than two source models support no claim at all.
        if len(rivals) > 1 and all(len(by_source) > 1 for by_source in scores.values()):
            best |= {rivals[name] for name in best_of(scores, larger=larger)}
    return best


def _comparisons(compared: Sequence[tuple[Cell, Comparison]]) -> Iterable[Comparisons]:
    """For each setting, its first score over most of its parts: the one that methods are judged by."""
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
    usual, mine = described(SSA()), described(reference.method)
    changed = {name: value for name, value in mine.items() if value != usual.get(name)}
    options = {"k": mine["k"]} | changed
    return f"SSA({', '.join(f'{name}={value!r}' for name, value in options.items())})"


def _named(layout: Layout) -> Iterable[tuple[str, Cell]]:
    """Every cell and what to call it by."""
    for row in layout.rows:
        groups = [cell.group for cell in row.cells if cell is not None]
        several = len(set(groups)) < len(groups)  # the columns of such a row differ in the method
        for column, cell in zip(layout.columns, row.cells, strict=True):
            if cell is not None and cell.arm is not None:
                yield (column if several else row.name), cell


def _comparison(name: str, cell: Cell, values: Mapping[Cell, Value]) -> Comparison:
    own = cell.arm is not None and not cell.arm.paired
    mine = {} if own else _whole(values[cell])
    to_ssa, to_source = (
        None if reference.arm == cell.arm else paired_difference(mine, _whole(values[reference]))
        for reference in references(cell)
    )
    return Comparison(name, to_ssa, to_source, own)


def _whole(value: Value) -> Mapping[int, float]:
    return {} if value.mean is None else value.by_source
