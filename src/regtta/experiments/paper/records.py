"""What a table of the paper is made of."""

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
        mean: the number; None where the paper prints ``-``.
        sd: the deviation beside it; None where none is given.
        diverged: the paper prints ``-``: the run diverged, or is part of a mean that therefore has no value.
        text: as printed, with the paper's own digits.

    Example:
        >>> print(PaperCell(mean=0.52, sd=0.02, text="0.520 ± 0.02"))
        0.520 ± 0.02
    """

    mean: float | None
    sd: float | None = None
    diverged: bool = False
    text: str = "-"

    def __str__(self) -> str:
        """As printed."""
        return self.text


@dataclass(frozen=True)
class Place:
    """A row or a column, and what it says of its cells; None and nothing where it says nothing.

    Attributes:
        name: ours, unlike any other of its kind in the table.
        label: the paper's own words; ``(none)`` where it has none.
        method: by our name.
        dataset: by our name.
        score: ``R2``, ``RMSE``, ``MAE``, ``accuracy`` (in percent), ``correlation``, ``valid_dimensions`` or
            ``subspace_dimensions``.
        options: what was varied, such as ``k``, ``lr``, ``batch_size``, ``metric``, ``weighting`` and ``task``.
    """

    name: str
    label: str
    method: str | None = None
    dataset: str | None = None
    score: str | None = None
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True)
class PaperRow:
    """A row: where it stands, and one cell for each column."""

    place: Place
    cells: tuple[PaperCell, ...]

    @property
    def name(self) -> str:
        """Our name of the row."""
        return self.place.name


@dataclass(frozen=True)
class PaperTable:
    """A table as printed, its rows and columns in the paper's order.

    Attributes:
        name: of the experiment it belongs to; several tables may share one.
        label: its LaTeX label.
        caption: in our words.
        score: of every cell; None where the columns differ.
        protocol: ``offline``, ``online``, or ``source`` for what is measured on the source model alone.
        dataset: of every cell; None where rows or columns differ.
        method: of the cells whose row and column name none; None where they all do or none has one.
        columns: one for each cell of a row.
        rows: from the top.
        notes: what a reader of the numbers should know.
    """

    name: str
    label: str
    caption: str
    score: str | None
    protocol: str
    dataset: str | None
    method: str | None
    columns: tuple[Place, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> PaperRow:
        """The row of that name."""
        known = {row.name: row for row in self.rows}
        return known[self._checked("row", name, tuple(known))]

    def cell(self, row: str, column: str) -> PaperCell:
        """The cell in that row and column, by our names of them.

        Example:
            >>> from regtta.experiments.paper import paper_table
            >>> paper_table("tab:svhn").cell("ssa", "R2").mean
            0.511
        """
        names = tuple(place.name for place in self.columns)
        return self.row(row).cells[names.index(self._checked("column", column, names))]

    def _checked(self, kind: str, name: str, known: tuple[str, ...]) -> str:
        if name not in known:
            raise OptionError(f"{self.label} has no {kind} {name!r}; it has {list(known)}." + did_you_mean(name, known))
        return name


@dataclass(frozen=True)
class SlipPlace:
    """One place that a slip concerns.

    Attributes:
        label: of the table.
        column: in it.
        row: in it; None for the whole column.
        says: what is printed there: the cell, or the column's heading where no row is named.
    """

    label: str
    column: str
    row: str | None
    says: str


@dataclass(frozen=True)
class Slip:
    """Where the paper contradicts itself.

    Attributes:
        name: of the slip.
        text: a footnote for the numbers concerned.
        places: every one of them.
    """

    name: str
    text: str
    places: tuple[SlipPlace, ...]

    def concerns(self, label: str, row: str, column: str) -> bool:
        """Whether the cell is one of its places."""
        return any(
            place.label == label and place.column == column and place.row in (None, row) for place in self.places
        )
