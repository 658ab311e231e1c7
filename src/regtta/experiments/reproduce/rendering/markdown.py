"""Markdown rendering of sheets."""

from collections.abc import Iterable

from regtta.experiments.reproduce.rendering.sheets import Line, Sheet, Text, columns_of_text


def as_markdown(sheets: Iterable[Sheet]) -> str:
    """Render each sheet as a heading, a table and a list of notes."""
    return "\n".join(_sheet(sheet) for sheet in sheets)


def _sheet(sheet: Sheet) -> str:
    columns = columns_of_text(sheet)
    lines = [
        f"### {sheet.title}",
        "",
        _row(columns),
        _row(["---", *["---:"] * len(sheet.columns)]),
        *(_row([_name(line), *(_text(text, line) for text in line.texts)]) for line in sheet.lines),
        "",
        *(f"- {_escaped(note)}" for note in sheet.notes),
        "",
    ]
    return "\n".join(lines)


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _name(line: Line) -> str:
    return f"*{line.name}*" if line.of_paper else _escaped(line.name)


def _text(text: Text, line: Line) -> str:
    if not text.text:
        return ""
    if line.of_paper:
        return f"*{_escaped(text.text)}*"
    return f"**{_escaped(text.text)}**" if text.bold else _escaped(text.text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
