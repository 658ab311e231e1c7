"""Reports of the experiments on the terminal, with wide tables split into blocks of columns that fit its width."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regtta.cli.views import make_table, print_facts, print_table

if TYPE_CHECKING:
    from regtta_bench.cli.label_shift import LabelShiftReport
    from regtta_bench.cli.reproduce import Reproduced
    from regtta_bench.cli.stress import Stressed
    from regtta_bench.tables import Line, Sheet

_BETWEEN = 2  # spaces between two columns


def show_sheet(sheet: "Sheet", console: Console) -> None:
    """Print the title, the columns in as many blocks as the width of ``console`` requires, and the notes."""
    console.print()
    console.print(Text(sheet.title, style="bold"))
    for columns in blocks(sheet, console.width):
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _BETWEEN, 0, 0))
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(Text(sheet.columns[column]), justify="right", overflow="fold")
        for line in sheet.lines:
            style = "dim" if line.of_paper else ""
            chosen = [line.texts[column] for column in columns]
            texts = [Text(text.text, style="bold" if text.bold else style) for text in chosen]
            table.add_row(Text(_name(line), style=style), *texts)
        console.print(table)
    for note in sheet.notes:
        console.print(Text(note, style="dim"))


def blocks(sheet: "Sheet", width: int) -> list[range]:
    """Split the columns into ranges that fit into ``width`` beside the names, with at least one column each."""
    names = max((len(_name(line)) for line in sheet.lines), default=0)
    made: list[range] = []
    begin, used = 0, names
    for column in range(len(sheet.columns)):
        needed = _BETWEEN + _needed(sheet, column)
        if column > begin and used + needed > width:
            made.append(range(begin, column))
            begin, used = column, names
        used += needed
    return [*made, range(begin, len(sheet.columns))]


def _needed(sheet: "Sheet", column: int) -> int:
    """Return the width of a column whose numbers are never wrapped; its title may wrap between words."""
    title = max(len(word) for word in sheet.columns[column].split() or [""])
    return max([title, *(len(line.texts[column].text) for line in sheet.lines)])


def _name(line: "Line") -> str:
    return f"  {line.name}" if line.of_paper else line.name


def experiments(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print a table of all experiments."""
    table = make_table("name", "runs on", "what it shows")
    for row in rows:
        table.add_row(*row)
    print_table(table)


def reproduced(report: "Reproduced | Stressed") -> None:
    """Print the tables and notes of one experiment and the files written."""
    for sheet in report.sheets:
        show_sheet(sheet, Console(highlight=False, markup=False))
    for note in report.notes:
        print_facts(("note", note))
    for path in report.written:
        print_facts(("written", str(path)))


def label_shift(report: "LabelShiftReport") -> None:
    """Print the best signals on each question and the files written."""
    print_facts(("cases", f"{report.cases:,}"))
    table = make_table("question", "signal", "AUC>", "95 %>", "found at 5 %>", "positives>", "negatives>")
    for question, signal, roc in report.best:
        interval = f"{roc.low:.3f} to {roc.high:.3f}"
        counts = (f"{roc.positives:,}", f"{roc.negatives:,}")
        table.add_row(question, signal, f"{roc.auc:.3f}", interval, f"{roc.found:.2f}", *counts)
    print_table(table)
    for path in report.written:
        print_facts(("written", str(path)))
