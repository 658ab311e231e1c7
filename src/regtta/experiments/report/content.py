"""What a report says, before anything is said about how it looks. All of it is plain text: nothing here is markup."""

from dataclasses import dataclass
from typing import Literal, get_args

from matplotlib.figure import Figure

from regtta.errors import OptionError
from regtta.options import check_choice

Tone = Literal["better", "worse", "undecided", "unknown"]


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure.

    Args:
        title: its heading.
        alt: what is to be seen, for those who cannot see it.
        caption: shown under it.
        figure: drawn on white.
    """

    title: str
    alt: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Entry:
    """One place of a grid.

    Args:
        text: as shown.
        bold: whether it stands out.
        value: what to sort by. ``None`` sorts by the text: by the number it begins with, if it does.
    """

    text: str
    bold: bool = False
    value: float | str | None = None


@dataclass(frozen=True)
class Grid:
    """A table that sorts. The first column names the rows.

    Args:
        title: its heading.
        columns: the heads of the columns.
        rows: as many entries in each as there are columns.
        notes: shown under it.

    Example:
        >>> Grid("Scores", ("method", "R²"), ((Entry("ssa"), Entry("0.93"), Entry("0.95")),))
        Traceback (most recent call last):
        regtta.errors.OptionError: Expected 2 entries in each row of the table 'Scores', found 3 in row 0.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for place, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise OptionError(
                    f"Expected {len(self.columns)} entries in each row of the table {self.title!r}, "
                    f"found {len(row)} in row {place}."
                )


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page with a heading: what is said, then tables, then figures."""

    title: str
    paragraphs: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """A whole report.

    Args:
        title: what was run.
        headline: the verdict in one sentence, the first thing on the page.
        tone: how the verdict is marked, by a word, a sign and a colour.
        summary: a few sentences under it.
        facts: names and values: model, statistics, method, versions, device.
        warnings: what to be careful about, in plain words; nothing is shown where there are none.
        sections: in the order of reading.
        command: what to type to make it all again.
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
