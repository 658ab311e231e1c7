"""CSV rendering of filled tables: one line per value, with all its metadata."""

import csv
import io
import math
from collections.abc import Iterable

from regtta.experiments.comparison import Difference
from regtta.experiments.reproduce.filling import Comparison, Filled, Value
from regtta.experiments.reproduce.layouts import Cell

COLUMNS = (
    *("table", "row", "column", "setting", "task", "score", "protocol", "mean", "sd", "source_models", "seeds"),
    *("runs", "diverged", "missing", "best", "own_source", "paper_mean", "paper_sd", "paper_table"),
    *("less_ssa", "less_ssa_low", "less_ssa_high", "less_source", "less_source_low", "less_source_high", "smoke"),
)


def as_csv(tables: Iterable[Filled], *, smoke: bool = False) -> str:
    """Render all cells of all tables as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for filled in tables:
        layout = filled.layout
        for row, values, gaps in zip(layout.rows, filled.values, filled.gaps, strict=True):
            for column, cell, value, gap in zip(layout.columns, row.cells, values, gaps, strict=True):
                if cell is not None and value is not None:
                    place = (layout.name, row.name, column)
                    writer.writerow([*place, *_of_cell(cell, value, filled), *_of_gap(gap), smoke])
    return text.getvalue()


def _of_cell(cell: Cell, value: Value, filled: Filled) -> list[object]:
    paper = cell.paper
    return [
        *(cell.setting.name, cell.task, cell.score, cell.protocol),
        *(_plain(value.mean), _plain(value.sd), filled.sources[cell.setting.name], filled.seeds),
        *(value.runs, value.diverged, value.missing, value.best, cell.arm is not None and not cell.arm.paired),
        *(("", "", "") if paper is None else (_plain(paper.cell.mean), _plain(paper.cell.sd), paper.label)),
    ]


def _of_gap(gap: Comparison | None) -> list[object]:
    if gap is None or gap.own_source:
        return [""] * 6
    return [*_of_difference(gap.to_ssa), *_of_difference(gap.to_source)]


def _of_difference(difference: Difference | None) -> list[object]:
    if difference is None:
        return [""] * 3
    return [_plain(value) for value in (difference.mean, difference.low, difference.high)]


def _plain(value: float | None) -> float | str:
    return "" if value is None or math.isnan(value) else value
