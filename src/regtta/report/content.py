"""Content of a report, independent of its layout. Every string is plain text and is escaped when rendered."""

from dataclasses import dataclass
from typing import Literal, get_args

from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.options import check_choice

Tone = Literal["better", "worse", "undecided", "unknown"]


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure with its texts.

    Args:
        title: heading.
        alt: description of the figure for readers who cannot see it.
        caption: text below the figure.
        figure: Matplotlib figure; it is shown on a white background.
    """

    title: str
    alt: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class ReportCell:
    """A table cell.

    Args:
        text: displayed text.
        bold: display the text in bold.
        value: sort key. With ``None``, the cell sorts by the number that its text begins with, or else by its text.
    """

    text: str
    bold: bool = False
    value: float | str | None = None


@dataclass(frozen=True)
class ReportTable:
    """A sortable table whose first column holds the row names.

    Args:
        title: heading.
        columns: column headers.
        rows: one cell per column in each row.
        notes: paragraphs below the table.

    Example:
        >>> ReportTable("Scores", ("method", "R²"), ((ReportCell("ssa"), ReportCell("0.93"), ReportCell("0.95")),))
        Traceback (most recent call last):
        regtta.errors.OptionError: Expected 2 cells in each row of the table 'Scores', found 3 in row 0.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise OptionError(
                    f"Expected {len(self.columns)} cells in each row of the table {self.title!r}, "
                    f"found {len(row)} in row {index}."
                )


@dataclass(frozen=True, eq=False)
class Section:
    """A set_title part of the page: paragraphs, then tables, then figures."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    figures: tuple[ReportFigure, ...] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """A complete report.

    Args:
        title: name of the run.
        headline: verdict in one sentence, shown first.
        tone: kind of verdict, shown as a word, a sign and a colour.
        summary: sentences below the headline.
        facts: pairs of name and value, such as model, statistics, method, versions and device.
        warnings: caveats in plain words; the list is omitted if empty.
        sections: in reading order.
        command: shell command that reproduces the report.
    """

    title: str
    headline: str
    tone: Tone
    summary: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    command: str

    def __post_init__(self) -> None:
        check_choice("tone", self.tone, get_args(Tone))
