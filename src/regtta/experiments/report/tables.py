"""Grids as HTML tables. What a column sorts by is decided here; the page's script only compares."""

import math
import re

from regtta.experiments.report.content import Entry, Grid
from regtta.experiments.report.markup import each, escaped

MANY = 8  # columns: with more, a table is set smaller on paper

# A sign, digits (by threes, where commas part them), a fraction, a power of ten.
_NUMBER = re.compile(r"\s*([+\-−]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+\-−]?\d+)?)")


def sort_key(entry: Entry) -> float | str | None:
    """What ``entry`` is sorted by: numbers come before texts, and ``None`` comes last whichever way one sorts.

    Example:
        >>> sort_key(Entry("0.93 ± 0.02")), sort_key(Entry("−1,024")), sort_key(Entry("diverged")), sort_key(Entry(""))
        (0.93, -1024.0, 'diverged', None)
        >>> sort_key(Entry("large", value=3))
        3.0
    """
    value = entry.value
    if value is None:
        start = _NUMBER.match(entry.text)
        value = entry.text if start is None else float(start[1].replace("−", "-").replace(",", ""))
    if isinstance(value, str):
        return value.strip() or None
    return None if math.isnan(value) else float(value)


def table_of(grid: Grid, name: str) -> str:
    """``grid`` with its heading and notes; ``name`` is the page's own name for it, an id."""
    numeric = [_is_numeric(grid, column) for column in range(len(grid.columns))]
    heads = "".join(
        f'<th scope="col" class="{_kind(number)}">{escaped(text)}</th>'
        for text, number in zip(grid.columns, numeric, strict=True)
    )
    rows = "\n".join(
        "<tr>" + "".join(_cell(entry, numeric[place], first=place == 0) for place, entry in enumerate(row)) + "</tr>"
        for row in grid.rows
    )
    notes = f'<div class="notes">\n{each("p", grid.notes)}\n</div>\n' if grid.notes else ""
    # The box scrolls, not the page; a tabindex lets the keyboard scroll it.
    return (
        f'<div class="grid">\n<h3 id="{name}">{escaped(grid.title)}</h3>\n'
        f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">\n'
        f'<table class="{"many" if len(grid.columns) > MANY else "few"}" aria-labelledby="{name}">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n{notes}</div>"
    )


def _cell(entry: Entry, number: bool, *, first: bool) -> str:
    key = sort_key(entry)
    sorts = "" if key is None else f' data-text="{escaped(key)}"' if isinstance(key, str) else _number_attribute(key)
    text = f"<strong>{escaped(entry.text)}</strong>" if entry.bold else escaped(entry.text)
    if first:
        return f'<th scope="row" class="{_kind(number)}"{sorts}>{text}</th>'
    return f'<td class="{_kind(number)}"{sorts}>{text}</td>'


def _number_attribute(key: float) -> str:
    """As JavaScript's ``Number`` reads it."""
    written = repr(key) if math.isfinite(key) else ("Infinity" if key > 0 else "-Infinity")
    return f' data-number="{written}"'


def _is_numeric(grid: Grid, column: int) -> bool:
    """Whether most entries shown are numbers, so that they stand under each other at the right."""
    shown = [row[column] for row in grid.rows if row[column].text.strip()]
    numbers = sum(_NUMBER.match(entry.text) is not None for entry in shown)
    return 2 * numbers > len(shown)


def _kind(number: bool) -> str:
    return "number" if number else "text"
