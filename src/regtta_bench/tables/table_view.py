"""Conversion of filled tables to sheets of text, which all human-readable formats render."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regtta_bench.paper import Cell
from regtta_bench.tables.aggregate import Comparison, Comparisons, Filled, Value
from regtta_bench.tables.comparison import CONFIDENCE, Difference

PAPER = "paper"
OUTDATED = "outdated"
_DIGITS = {"accuracy": 2, "valid_dimensions": 1, "subspace_dimensions": 1}


@dataclass(frozen=True)
class Text:
    """Text of one cell in a sheet."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a sheet: its name, its texts, and a flag that is True if they are the paper's numbers."""

    name: str
    texts: tuple[Text, ...]
    of_paper: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table of formatted texts.

    Attributes:
        title: title above the table.
        columns: column titles, without that of the line names.
        lines: lines from top to bottom.
        notes: notes below the table.
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


def sheets_of(filled: Filled, *, smoke: bool = False) -> tuple[Sheet, ...]:
    """Return the sheet of the table, followed by the sheets of its comparisons.

    Args:
        filled: the filled table.
        smoke: True for scaled-down runs, whose numbers are not results; marks the title.
    """
    lines = []
    for row, values in zip(filled.layout.rows, filled.values, strict=True):
        lines.append(Line(row.name, tuple(_ours(cell, value) for cell, value in zip(row.cells, values, strict=True))))
        printed = tuple(Text("" if cell is None or cell.paper is None else str(cell.paper.cell)) for cell in row.cells)
        if any(text.text for text in printed):
            lines.append(Line(PAPER, printed, of_paper=True))
    title = f"{'SMOKE RUN, not a result: ' if smoke else ''}{filled.layout.title}"
    table = Sheet(title, filled.layout.columns, tuple(lines), notes_of(filled))
    return (table, *(_compared(comparisons) for comparisons in filled.comparisons))


def number(score: str, value: float) -> str:
    """Format a value with the number of digits of its score.

    Example:
        >>> number("R2", 0.51149), number("subspace_dimensions", 14.0)
        ('0.511', '14')
    """
    text = f"{value:.{_DIGITS.get(score, 3)}f}"
    return text.removesuffix(".0") if score in ("valid_dimensions", "subspace_dimensions") else text


def _ours(cell: Cell | None, value: Value | None) -> Text:
    if cell is None or value is None:
        return Text("")
    if value.missing:
        state = "not run" if value.outdated < value.missing else OUTDATED
        return Text(state if not value.runs else f"{value.missing} missing")
    if value.diverged:
        return Text("diverged" if value.diverged == value.runs else f"diverged {value.diverged} of {value.runs}")
    if value.mean is None:
        return Text("not run")
    spread = "" if value.sd is None else f" ± {number(cell.score, value.sd)}"
    return Text(number(cell.score, value.mean) + spread, value.best)


def _compared(comparisons: Comparisons) -> Sheet:
    columns = tuple(f"less {name} [{CONFIDENCE:.0%}]" for name in ("ssa", "source"))
    lines = tuple(Line(line.row, _gaps(line)) for line in comparisons.lines)
    gaps = (gap for line in comparisons.lines for gap in (line.to_ssa, line.to_source) if gap is not None)
    pairs = max((gap.pairs for gap in gaps), default=0)
    note = {
        0: "Nothing to compare.",
        1: "One source model: differences without an interval, which settle nothing.",
    }.get(pairs, f"Paired over {pairs} source models, percentile bootstrap; bold where zero is outside.")
    return Sheet(f"Differences in {comparisons.title}", columns, lines, (note, f"ssa: {comparisons.ssa}."))


def _gaps(line: Comparison) -> tuple[Text, ...]:
    if line.own_source:
        return (Text("own source models"), Text("own source models"))
    return tuple(
        Text("itself") if difference is None else Text(gap_text(difference), difference.decided)
        for difference in (line.to_ssa, line.to_source)
    )


def gap_text(difference: Difference) -> str:
    """Format a difference with its confidence interval.

    Example:
        >>> gap_text(Difference(0.0142, 0.012, 0.017, 5))
        '+0.014 [+0.012, +0.017]'
    """
    if not difference.pairs or math.isnan(difference.mean):
        return "–"
    if math.isnan(difference.low):
        return f"{difference.mean:+.3f}"
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def notes_of(filled: Filled) -> tuple[str, ...]:
    """Return the notes below the table."""
    cells = list(filled.layout.cells())
    notes = [_behind(filled)]
    if any(cell.paper is not None for cell in cells):
        notes.append(f"Lines of the paper: {filled.layout.label}, from its own source models.")
    if any(cell.setting.name == "svhn-subset" for cell in cells):
        notes.append("The source here is a subset of SVHN; the paper's is the whole.")
    arms = [cell.arm for cell in cells if cell.arm is not None]
    if any(not arm.paired for arm in arms):
        notes.append("TTT and DANN train source models of their own; the other methods share theirs.")
    if any(arm.method.takes_targets for arm in arms):
        notes.append("The oracle learns from the target's labels.")
    if any(value is not None and value.best for values in filled.values for value in values):
        notes.append("Bold: the best of what shares source models, the oracle left out, and all that tie with it.")
    if any(value is not None and value.outdated for values in filled.values for value in values):
        notes.append(
            f"{OUTDATED.capitalize()}: made by an older revision of the method or of its training, and so left out; "
            "without --tables-only the command makes these runs again."
        )
    slips = dict.fromkeys(slip.text for cell in cells if cell.paper is not None for slip in cell.paper.slips)
    return (*notes, *filled.layout.notes, *(f"A slip of the paper's: {text}" for text in slips))


def _behind(filled: Filled) -> str:
    counts = ", ".join(_counted(count, name) for name, count in filled.sources.items())
    each = f"{filled.seeds} adaptation seed{'s' if filled.seeds > 1 else ''} on each"
    over = "over source models" if max(filled.sources.values()) > 1 else "over adaptation seeds"
    if min(filled.sources.values()) == 1 < max(filled.sources.values()):
        over = "over source models where there are several, else over adaptation seeds"
    return f"Source models: {counts}; {each}. ± is the standard deviation {over}."


def _counted(count: int, name: str) -> str:
    return f"{count} ({name})"


def columns_of_text(sheet: Sheet) -> Sequence[str]:
    """Return all column titles, with an empty one for the line names first."""
    return ("", *sheet.columns)
