"""Data classes for the tables of the paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from regtta.errors import OptionError
from regtta.options import did_you_mean

Option = str | int | float | bool


@dataclass(frozen=True)
class PaperCell:
    """One printed number.

    Attributes:
        mean: the number; None if the paper prints ``-``.
        sd: standard deviation; None if none is printed.
        diverged: True if the paper prints ``-``: the run diverged, or it is a mean over runs of which one diverged.
        text: the number as printed.

    Example:
        >>> print(PaperCell(mean=0.52, sd=0.02, text="0.520 ± 0.02"))
        0.520 ± 0.02
    """

    mean: float | None
    sd: float | None = None
    diverged: bool = False
    text: str = "-"

    def __str__(self) -> str:
        """Return the number as printed."""
        return self.text


@dataclass(frozen=True)
class Header:
    """Header of a row or a column, with the properties that its cells share; None if it does not specify one.

    Attributes:
        name: our name, unique among the rows or columns of the table.
        label: the paper's label; ``(none)`` if it has none.
        method: our name of the method.
        dataset: our name of the data set.
        score: ``R2``, ``RMSE``, ``MAE``, ``accuracy`` (in percent), ``correlation``, ``valid_dimensions`` or
            ``subspace_dimensions``.
        options: options that are varied, such as ``k``, ``lr``, ``batch_size``, ``metric``, ``weighting`` and ``task``.
    """

    name: str
    label: str
    method: str | None = None
    dataset: str | None = None
    score: str | None = None
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True)
class PaperRow:
    """Row of a table: its header ``header`` and one cell per column."""

    header: Header
    cells: tuple[PaperCell, ...]

    @property
    def name(self) -> str:
        """Name of the row."""
        return self.header.name


@dataclass(frozen=True)
class PaperTable:
    """Table as printed, with its rows and columns in the paper's order.

    Attributes:
        name: name of the experiment, which several tables may share.
        label: LaTeX label.
        caption: caption in our words.
        score: score of all cells; None if the columns differ.
        protocol: ``offline``, ``online``, or ``source`` for measurements on the source model alone.
        dataset: data set of all cells; None if rows or columns differ.
        method: default method of cells whose row and column specify none; None if there is no default.
        columns: headers of the columns.
        rows: rows from top to bottom.
        notes: remarks on the numbers.
    """

    name: str
    label: str
    caption: str
    score: str | None
    protocol: str
    dataset: str | None
    method: str | None
    columns: tuple[Header, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> PaperRow:
        """Return a row by name."""
        known = {row.name: row for row in self.rows}
        return known[self._checked("row", name, tuple(known))]

    def cell(self, row: str, column: str) -> PaperCell:
        """Return a cell by the names of its row and column.

        Example:
            >>> from regtta_bench.paper import paper_table
            >>> paper_table("tab:svhn").cell("ssa", "R2").mean
            0.511
        """
        names = tuple(header.name for header in self.columns)
        return self.row(row).cells[names.index(self._checked("column", column, names))]

    def _checked(self, kind: str, name: str, known: tuple[str, ...]) -> str:
        if name not in known:
            raise OptionError(f"{self.label} has no {kind} {name!r}; it has {list(known)}." + did_you_mean(name, known))
        return name


@dataclass(frozen=True)
class SlipLocation:
    """Cell or column that a slip concerns.

    Attributes:
        label: LaTeX label of the table.
        column: name of the column.
        row: name of the row; None for the whole column.
        printed: the printed text of the cell, or of the column heading if there is no row.
    """

    label: str
    column: str
    row: str | None
    printed: str


@dataclass(frozen=True)
class Slip:
    """Contradiction in the paper.

    Attributes:
        name: name of the slip.
        text: footnote for the numbers concerned.
        places: all places concerned.
    """

    name: str
    text: str
    places: tuple[SlipLocation, ...]

    def concerns(self, label: str, row: str, column: str) -> bool:
        """Return True if the slip concerns the cell."""
        return any(
            header.label == label and header.column == column and header.row in (None, row) for header in self.places
        )
