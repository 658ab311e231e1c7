"""Filled tables as LaTeX, Markdown and CSV."""

import csv
import io
import math
from collections.abc import Iterable

from regtta_bench.paper import Cell
from regtta_bench.tables.aggregate import Comparison, Filled, Value
from regtta_bench.tables.comparison import Difference
from regtta_bench.tables.table_view import Line, Sheet, Text, columns_of_text

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "²": r"$^2$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "✓": r"$\checkmark$",
    "–": "--",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
}


def as_latex(sheets: Iterable[Sheet]) -> str:
    """Render each sheet as a LaTeX ``table``; the document must load ``booktabs``."""
    return "\n".join(_latex_table(sheet) for sheet in sheets)


def _latex_table(sheet: Sheet) -> str:
    rows = [_latex_row([_latex_name(line), *(_latex_text(text, line) for text in line.texts)]) for line in sheet.lines]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(sheet.title)}. {' '.join(escaped(note) for note in sheet.notes)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(sheet.columns)}}}",
        r"\toprule",
        _latex_row(escaped(column) for column in columns_of_text(sheet)),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _latex_row(texts: Iterable[str]) -> str:
    return rf"{' & '.join(texts)} \\"


def _latex_name(line: Line) -> str:
    return rf"\emph{{{line.name}}}" if line.of_paper else escaped(line.name)


def _latex_text(text: Text, line: Line) -> str:
    if line.of_paper and text.text:
        return rf"\emph{{{escaped(text.text)}}}"
    return rf"\textbf{{{escaped(text.text)}}}" if text.bold else escaped(text.text)


def escaped(text: str) -> str:
    r"""Return ``text`` with LaTeX's special characters escaped and symbols in math mode.

    Example:
        >>> escaped("R² of 50 %_k")
        'R$^2$ of 50 \\%\\_k'
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def as_markdown(sheets: Iterable[Sheet]) -> str:
    """Render each sheet as a heading, a table and a list of notes."""
    return "\n".join(_markdown_table(sheet) for sheet in sheets)


def _markdown_table(sheet: Sheet) -> str:
    columns = columns_of_text(sheet)
    lines = [
        f"### {sheet.title}",
        "",
        _markdown_row(columns),
        _markdown_row(["---", *["---:"] * len(sheet.columns)]),
        *(
            _markdown_row([_markdown_name(line), *(_markdown_text(text, line) for text in line.texts)])
            for line in sheet.lines
        ),
        "",
        *(f"- {_escaped(note)}" for note in sheet.notes),
        "",
    ]
    return "\n".join(lines)


def _markdown_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _markdown_name(line: Line) -> str:
    return f"*{line.name}*" if line.of_paper else _escaped(line.name)


def _markdown_text(text: Text, line: Line) -> str:
    if not text.text:
        return ""
    if line.of_paper:
        return f"*{_escaped(text.text)}*"
    return f"**{_escaped(text.text)}**" if text.bold else _escaped(text.text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


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
