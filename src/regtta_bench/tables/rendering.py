"""Filled tables as LaTeX, Markdown and CSV."""

import csv
import io
import math
from collections.abc import Iterable

from regtta_bench.paper import CellSpec
from regtta_bench.tables.aggregate import CellValue, Comparison, FilledTable
from regtta_bench.tables.comparison import Difference
from regtta_bench.tables.text_tables import TextCell, TextRow, TextTable, column_titles

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


def render_latex(tables: Iterable[TextTable]) -> str:
    """Render each table as a LaTeX ``table``; the document must load ``booktabs``."""
    return "\n".join(_latex_table(table) for table in tables)


def _latex_table(table: TextTable) -> str:
    rows = [_latex_row([_latex_name(row), *(_latex_text(text, row) for text in row.cells)]) for row in table.rows]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}. {' '.join(escape_latex(note) for note in table.notes)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        _latex_row(escape_latex(column) for column in column_titles(table)),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _latex_row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _latex_name(row: TextRow) -> str:
    return rf"\emph{{{row.name}}}" if row.from_paper else escape_latex(row.name)


def _latex_text(text: TextCell, row: TextRow) -> str:
    if row.from_paper and text.text:
        return rf"\emph{{{escape_latex(text.text)}}}"
    return rf"\textbf{{{escape_latex(text.text)}}}" if text.bold else escape_latex(text.text)


def escape_latex(text: str) -> str:
    r"""Return ``text`` with LaTeX's special characters escaped and symbols in math mode.

    Example:
        >>> escape_latex("R² of 50 %_k")
        'R$^2$ of 50 \\%\\_k'
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def render_markdown(tables: Iterable[TextTable]) -> str:
    """Render each table as a heading, a table and a list of notes."""
    return "\n".join(_markdown_table(table) for table in tables)


def _markdown_table(table: TextTable) -> str:
    columns = column_titles(table)
    lines = [
        f"### {table.title}",
        "",
        _markdown_row(columns),
        _markdown_row(["---", *["---:"] * len(table.columns)]),
        *(
            _markdown_row([_markdown_name(row), *(_markdown_text(text, row) for text in row.cells)])
            for row in table.rows
        ),
        "",
        *(f"- {_escape_markdown(note)}" for note in table.notes),
        "",
    ]
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_name(row: TextRow) -> str:
    return f"*{row.name}*" if row.from_paper else _escape_markdown(row.name)


def _markdown_text(text: TextCell, row: TextRow) -> str:
    if not text.text:
        return ""
    if row.from_paper:
        return f"*{_escape_markdown(text.text)}*"
    return f"**{_escape_markdown(text.text)}**" if text.bold else _escape_markdown(text.text)


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


CSV_COLUMNS = (
    *("table", "row", "column", "setting", "task", "score", "protocol", "mean", "sd", "source_models", "seeds"),
    *("runs", "diverged", "missing", "best", "own_source", "paper_mean", "paper_sd", "paper_table"),
    *("less_ssa", "less_ssa_low", "less_ssa_high", "less_source", "less_source_low", "less_source_high", "smoke"),
)


def render_csv(tables: Iterable[FilledTable], *, smoke: bool = False) -> str:
    """Render all cells of all tables as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for filled in tables:
        table_spec = filled.table_spec
        for row, values, comparisons in zip(table_spec.rows, filled.values, filled.comparisons, strict=True):
            for column, cell, value, comparison in zip(table_spec.columns, row.cells, values, comparisons, strict=True):
                if cell is not None and value is not None:
                    position = (table_spec.name, row.name, column)
                    writer.writerow(
                        [*position, *_cell_values(cell, value, filled), *_comparison_values(comparison), smoke]
                    )
    return text.getvalue()


def _cell_values(cell: CellSpec, value: CellValue, filled: FilledTable) -> list[object]:
    paper = cell.paper
    return [
        *(cell.setting.name, cell.task, cell.score, cell.protocol),
        *(_number_or_empty(value.mean), _number_or_empty(value.sd), filled.sources[cell.setting.name], filled.seeds),
        *(
            value.runs,
            value.diverged,
            value.missing,
            value.best,
            cell.method_config is not None and not cell.method_config.paired,
        ),
        *(
            ("", "", "")
            if paper is None
            else (_number_or_empty(paper.cell.mean), _number_or_empty(paper.cell.sd), paper.label)
        ),
    ]


def _comparison_values(comparison: Comparison | None) -> list[object]:
    if comparison is None or comparison.own_source:
        return [""] * 6
    return [*_difference_values(comparison.to_ssa), *_difference_values(comparison.to_source)]


def _difference_values(difference: Difference | None) -> list[object]:
    if difference is None:
        return [""] * 3
    return [_number_or_empty(value) for value in (difference.mean, difference.low, difference.high)]


def _number_or_empty(value: float | None) -> float | str:
    return "" if value is None or math.isnan(value) else value
