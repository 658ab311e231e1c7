"""Wide tables on the terminal, split into blocks of columns that fit its width."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from regtta.experiments.reproduce.rendering import Sheet
    from regtta.experiments.reproduce.rendering.sheets import Line

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
