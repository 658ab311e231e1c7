"""Reports of the experiments on the terminal, with wide tables split into blocks of columns that fit its width."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regtta.cli.views import make_table, print_facts, print_table

if TYPE_CHECKING:
    from regtta_bench.cli.label_shift import LabelShiftReport
    from regtta_bench.cli.reproduce import ReproduceReport
    from regtta_bench.cli.stress import StressReport
    from regtta_bench.tables import TextRow, TextTable

_COLUMN_GAP = 2  # spaces between two columns


def print_text_table(text_table: "TextTable", console: Console) -> None:
    """Print the title, the columns in as many blocks as the width of ``console`` requires, and the notes."""
    console.print()
    console.print(Text(text_table.title, style="bold"))
    for columns in column_blocks(text_table, console.width):
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _COLUMN_GAP, 0, 0))
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(Text(text_table.columns[column]), justify="right", overflow="fold")
        for row in text_table.rows:
            style = "dim" if row.from_paper else ""
            chosen = [row.cells[column] for column in columns]
            cells = [Text(text.text, style="bold" if text.bold else style) for text in chosen]
            table.add_row(Text(_row_name(row), style=style), *cells)
        console.print(table)
    for note in text_table.notes:
        console.print(Text(note, style="dim"))


def column_blocks(text_table: "TextTable", width: int) -> list[range]:
    """Split the columns into ranges that fit into ``width`` beside the names, with at least one column each."""
    names = max((len(_row_name(row)) for row in text_table.rows), default=0)
    ranges: list[range] = []
    begin, used = 0, names
    for column in range(len(text_table.columns)):
        needed = _COLUMN_GAP + _column_width(text_table, column)
        if column > begin and used + needed > width:
            ranges.append(range(begin, column))
            begin, used = column, names
        used += needed
    return [*ranges, range(begin, len(text_table.columns))]


def _column_width(text_table: "TextTable", column: int) -> int:
    """Return the width of a column whose numbers are never wrapped; its title may wrap between words."""
    title = max(len(word) for word in text_table.columns[column].split() or [""])
    return max([title, *(len(row.cells[column].text) for row in text_table.rows)])


def _row_name(row: "TextRow") -> str:
    return f"  {row.name}" if row.from_paper else row.name


def print_experiments(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print a table of all experiments."""
    table = make_table("name", "runs on", "what it shows")
    for row in rows:
        table.add_row(*row)
    print_table(table)


def print_report(report: "ReproduceReport | StressReport") -> None:
    """Print the tables and notes of one experiment and the files written."""
    for text_table in report.tables:
        print_text_table(text_table, Console(highlight=False, markup=False))
    for note in report.notes:
        print_facts(("note", note))
    for path in report.written:
        print_facts(("written", str(path)))


def print_label_shift(report: "LabelShiftReport") -> None:
    """Print the best signals on each question and the files written."""
    print_facts(("cases", f"{report.cases:,}"))
    table = make_table("question", "signal", "AUC>", "95 %>", "found at 5 %>", "positives>", "negatives>")
    for question, signal, roc in report.best:
        interval = f"{roc.low:.3f} to {roc.high:.3f}"
        counts = (f"{roc.positives:,}", f"{roc.negatives:,}")
        table.add_row(question, signal, f"{roc.auc:.3f}", interval, f"{roc.tpr_at_5_percent:.2f}", *counts)
    print_table(table)
    for path in report.written:
        print_facts(("written", str(path)))
