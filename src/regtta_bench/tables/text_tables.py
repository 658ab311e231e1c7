"""Conversion of filled tables to tables of text, which all human-readable formats render."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regtta_bench.paper import CellSpec
from regtta_bench.tables.aggregate import CellValue, Comparison, ComparisonTable, FilledTable
from regtta_bench.tables.comparison import CONFIDENCE_LEVEL, Difference

PAPER = "paper"
OUTDATED = "outdated"
_DIGITS = {"accuracy": 2, "valid_dimensions": 1, "subspace_dimensions": 1}


@dataclass(frozen=True)
class TextCell:
    """Text of one cell."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class TextRow:
    """A row of texts: its name, its cells, and a flag that is True if they are the paper's numbers."""

    name: str
    cells: tuple[TextCell, ...]
    from_paper: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table of formatted texts.

    Attributes:
        title: title above the table.
        columns: column titles, without that of the row names.
        rows: rows from top to bottom.
        notes: notes below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[TextRow, ...]
    notes: tuple[str, ...] = ()


def make_text_tables(filled: FilledTable, *, smoke: bool = False) -> tuple[TextTable, ...]:
    """Return the text of the table, followed by the texts of its comparisons.

    Args:
        filled: the filled table.
        smoke: True for scaled-down runs, whose numbers are not results; marks the title.
    """
    rows = []
    for row, values in zip(filled.table_spec.rows, filled.values, strict=True):
        rows.append(
            TextRow(row.name, tuple(_value_cell(cell, value) for cell, value in zip(row.cells, values, strict=True)))
        )
        printed = tuple(
            TextCell("" if cell is None or cell.paper is None else str(cell.paper.cell)) for cell in row.cells
        )
        if any(text.text for text in printed):
            rows.append(TextRow(PAPER, printed, from_paper=True))
    title = f"{'SMOKE RUN, not a result: ' if smoke else ''}{filled.table_spec.title}"
    main = TextTable(title, filled.table_spec.columns, tuple(rows), table_notes(filled))
    return (main, *(_comparison_text(table) for table in filled.comparison_tables))


def format_score(score: str, value: float) -> str:
    """Format a value with the number of digits of its score.

    Example:
        >>> format_score("R2", 0.51149), format_score("subspace_dimensions", 14.0)
        ('0.511', '14')
    """
    text = f"{value:.{_DIGITS.get(score, 3)}f}"
    return text.removesuffix(".0") if score in ("valid_dimensions", "subspace_dimensions") else text


def _value_cell(cell: CellSpec | None, value: CellValue | None) -> TextCell:
    if cell is None or value is None:
        return TextCell("")
    if value.missing:
        state = "not run" if value.outdated < value.missing else OUTDATED
        return TextCell(state if not value.runs else f"{value.missing} missing")
    if value.diverged:
        return TextCell("diverged" if value.diverged == value.runs else f"diverged {value.diverged} of {value.runs}")
    if value.mean is None:
        return TextCell("not run")
    spread = "" if value.sd is None else f" ± {format_score(cell.score, value.sd)}"
    return TextCell(format_score(cell.score, value.mean) + spread, value.best)


def _comparison_text(table: ComparisonTable) -> TextTable:
    columns = tuple(f"less {name} [{CONFIDENCE_LEVEL:.0%}]" for name in ("ssa", "source"))
    rows = tuple(TextRow(row.row, _difference_cells(row)) for row in table.rows)
    differences = (each for row in table.rows for each in (row.to_ssa, row.to_source) if each is not None)
    pairs = max((each.pairs for each in differences), default=0)
    note = {
        0: "Nothing to compare.",
        1: "One source model: differences without an interval, which settle nothing.",
    }.get(pairs, f"Paired over {pairs} source models, percentile bootstrap; bold where zero is outside.")
    return TextTable(f"Differences in {table.title}", columns, rows, (note, f"ssa: {table.ssa}."))


def _difference_cells(row: Comparison) -> tuple[TextCell, ...]:
    if row.own_source:
        return (TextCell("own source models"), TextCell("own source models"))
    return tuple(
        TextCell("itself") if difference is None else TextCell(format_difference(difference), difference.is_significant)
        for difference in (row.to_ssa, row.to_source)
    )


def format_difference(difference: Difference) -> str:
    """Format a difference with its confidence interval.

    Example:
        >>> format_difference(Difference(0.0142, 0.012, 0.017, 5))
        '+0.014 [+0.012, +0.017]'
    """
    if not difference.pairs or math.isnan(difference.mean):
        return "–"
    if math.isnan(difference.low):
        return f"{difference.mean:+.3f}"
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def table_notes(filled: FilledTable) -> tuple[str, ...]:
    """Return the notes below the table."""
    cells = list(filled.table_spec.cells())
    notes = [_describe_sample(filled)]
    if any(cell.paper is not None for cell in cells):
        notes.append(f"Lines of the paper: {filled.table_spec.label}, from its own source models.")
    if any(cell.setting.name == "svhn-subset" for cell in cells):
        notes.append("The source here is a subset of SVHN; the paper's is the whole.")
    method_configs = [cell.method_config for cell in cells if cell.method_config is not None]
    if any(not method_config.paired for method_config in method_configs):
        notes.append("TTT and DANN train source models of their own; the other methods share theirs.")
    if any(method_config.method.takes_targets for method_config in method_configs):
        notes.append("The oracle learns from the target's labels.")
    if any(value is not None and value.best for values in filled.values for value in values):
        notes.append("Bold: the best of what shares source models, the oracle left out, and all that tie with it.")
    if any(value is not None and value.outdated for values in filled.values for value in values):
        notes.append(
            f"{OUTDATED.capitalize()}: made by an older revision of the method or of its training, and so left out; "
            "without --tables-only the command makes these runs again."
        )
    slips = dict.fromkeys(slip.text for cell in cells if cell.paper is not None for slip in cell.paper.slips)
    return (*notes, *filled.table_spec.notes, *(f"A slip of the paper's: {text}" for text in slips))


def _describe_sample(filled: FilledTable) -> str:
    counts = ", ".join(_counted(count, name) for name, count in filled.sources.items())
    each = f"{filled.seeds} adaptation seed{'s' if filled.seeds > 1 else ''} on each"
    over = "over source models" if max(filled.sources.values()) > 1 else "over adaptation seeds"
    if min(filled.sources.values()) == 1 < max(filled.sources.values()):
        over = "over source models where there are several, else over adaptation seeds"
    return f"Source models: {counts}; {each}. ± is the standard deviation {over}."


def _counted(count: int, name: str) -> str:
    return f"{count} ({name})"


def column_titles(table: TextTable) -> Sequence[str]:
    """Return all column titles, with an empty one for the row names first."""
    return ("", *table.columns)
