"""Table layouts: the rows and columns of the paper's tables, with the runs and the published number of each cell."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from regtta_bench.paper.latex_tables import paper_table
from regtta_bench.paper.method_configs import Arm, arm_of
from regtta_bench.paper.numbers import PaperNumber, numbers_of
from regtta_bench.paper.protocol import TASKS, Task
from regtta_bench.paper.records import PaperTable
from regtta_bench.paper.settings import SETTINGS, Options, Part, Setting

OF_THE_SOURCE = ("valid_dimensions", "subspace_dimensions", "correlation")
SMALLER_IS_BETTER = ("RMSE", "MAE")

# Setting by experiment and data set, where its name differs from that of the data set.
_SETTING_OF: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("vit", "svhn"): "svhn-vit",
        ("biwi-multitask", "biwi"): "biwi-multitask",
        ("subspace", "cifar10"): "cifar10c",
    }
)
# Exceptions of single tables: the naive alignment beside the subspace dimensions uses all raw dimensions, and the
# correlation on Biwi Kinect is measured on one model.
_OPTIONS_OF: Mapping[tuple[str, str], Options] = MappingProxyType(
    {("tab:subspace_dim", "feature_alignment"): MappingProxyType({"k": None})}
)
_COLUMN_OF: Mapping[tuple[str, str], str] = MappingProxyType(
    {("atab:correlation_table", "biwi"): "female_to_male_pitch"}
)


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        setting: the experimental setting.
        parts: the shifts that the number is averaged over.
        score: name of the score in the paper.
        protocol: ``offline`` or ``online``; ``source`` for properties of the source model.
        arm: the method to run; None for properties of the source model.
        task: the task of the source models.
        paper: the published number; None if there is none.
    """

    setting: Setting
    parts: tuple[Part, ...]
    score: str
    protocol: str
    arm: Arm | None
    task: Task = "regression"
    paper: PaperNumber | None = None

    @property
    def group(self) -> tuple[object, ...]:
        """Key shared by comparable cells: the same score on the same shifts and task."""
        return (self.setting.name, self.parts, self.score, self.protocol, self.task)


@dataclass(frozen=True)
class Row:
    """A table row: its name and one cell per column; None where the table is blank."""

    name: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Layout:
    """An empty table.

    Attributes:
        name: short name, unique within its experiment.
        title: title above the table.
        label: LaTeX label of the paper's table.
        columns: column titles.
        rows: rows from top to bottom.
        notes: notes below the table.
    """

    name: str
    title: str
    label: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def cells(self) -> Iterable[Cell]:
        """Iterate over the cells of all rows."""
        return (cell for row in self.rows for cell in row.cells if cell is not None)


def layout_of(
    label: str,
    *,
    settings: Mapping[str, str] | None = None,
    options: Options | None = None,
    reading: str = "",
    more: Mapping[str, Mapping[str, Arm]] | None = None,
) -> Layout:
    """Return the layout of the paper's table ``label``.

    Args:
        label: LaTeX label of the table.
        settings: setting by data set of the paper; data sets without an entry are dropped. By default every data set
            in its own setting.
        options: overrides for the rows of SSA and feature alignment.
        reading: name of these overrides, appended to the table's name and title.
        more: additional rows by name, as arms by setting.
    """
    table = paper_table(label)
    numbers = iter(numbers_of(table))
    rows, kept = [], [False] * len(table.columns)
    for row in table.rows:
        cells = tuple(_cell(table, next(numbers), settings, options) for _ in table.columns)
        kept = [was or cell is not None for was, cell in zip(kept, cells, strict=True)]
        if any(cells):
            rows.append(Row(_row_name(row.name, cells), cells))
    rows += _more_rows(rows, more or {})
    return Layout(
        name=_file_name(_without_whole_names(label.partition(":")[2], settings), reading),
        title=_without_whole_names(table.caption.rstrip("."), settings) + (f", reading: {reading}" if reading else ""),
        label=label,
        columns=tuple(
            _column_name(column.label, index, rows) for index, column in enumerate(table.columns) if kept[index]
        ),
        rows=tuple(Row(row.name, tuple(c for c, keep in zip(row.cells, kept, strict=True) if keep)) for row in rows),
        notes=table.notes,
    )


def _file_name(name: str, reading: str) -> str:
    return "-".join([name, *reading.split()])


def _cell(
    table: PaperTable, number: PaperNumber, settings: Mapping[str, str] | None, options: Options | None
) -> Cell | None:
    name = _SETTING_OF.get((table.name, number.dataset), number.dataset)
    if settings is not None:
        if number.dataset not in settings:
            return None
        name = settings[number.dataset]
    setting = SETTINGS[name]
    task = _task(number)
    parts = setting.parts_of(_COLUMN_OF.get((table.label, number.dataset), number.column))
    if number.score in OF_THE_SOURCE:
        return Cell(setting, parts, number.score, "source", None, task, number)
    changed: dict[str, object] = {key: value for key, value in number.options.items() if key != "task"}
    changed |= _OPTIONS_OF.get((table.label, number.method or ""), {})
    if number.method in ("ssa", "feature_alignment"):
        changed |= options or {}
    arm = arm_of(setting, number.method or "source", changed, task=task)
    return Cell(setting, parts, number.score, table.protocol, arm, task, number)


def _task(number: PaperNumber) -> Task:
    if number.score == "accuracy":
        return "classification"
    named = number.options.get("task", "regression")
    return next(task for task in TASKS if task == named)


def _row_name(name: str, cells: tuple[Cell | None, ...]) -> str:
    """Return the row's name; a row named after a data set is renamed to its setting."""
    cell = next(cell for cell in cells if cell is not None)
    named = cell.paper is not None and name == cell.paper.dataset
    return cell.setting.name if named else name


def _column_name(label: str, index: int, rows: list[Row]) -> str:
    """Return the column's title; a column named after a data set is renamed to its setting."""
    cells = [row.cells[index] for row in rows if row.cells[index] is not None]
    first = cells[0] if cells else None
    if first is not None and first.paper is not None and first.paper.column == first.paper.dataset:
        return first.setting.name
    return label


def _without_whole_names(text: str, settings: Mapping[str, str] | None) -> str:
    """Replace names of data sets by those of their settings, so that a subset is never labelled as the full set."""
    for whole, part in (settings or {}).items():
        text = re.sub(rf"(?i)\b{whole}\b|(?<=_){whole}|{whole}(?=_)", part, text)
    return text


def _more_rows(rows: list[Row], more: Mapping[str, Mapping[str, Arm]]) -> list[Row]:
    """Return a row for each entry of ``more``: the cells of the first row with another arm and no published number."""
    first = rows[0]
    made = []
    for name, arms in more.items():
        cells = tuple(
            replace(cell, arm=arms[cell.setting.name], paper=None)
            if cell is not None and cell.arm is not None and cell.setting.name in arms
            else None
            for cell in first.cells
        )
        if any(cells):
            made.append(Row(name, cells))
    return made


def restricted(layout: Layout, settings: Iterable[str]) -> Layout | None:
    """Return ``layout`` restricted to the cells of ``settings``; None if no cell remains."""
    wanted = set(settings)
    cells = [
        tuple(cell if cell is not None and cell.setting.name in wanted else None for cell in row.cells)
        for row in layout.rows
    ]
    kept = [any(row[index] is not None for row in cells) for index in range(len(layout.columns))]
    rows = tuple(
        Row(row.name, tuple(cell for cell, keep in zip(mine, kept, strict=True) if keep))
        for row, mine in zip(layout.rows, cells, strict=True)
        if any(mine)
    )
    columns = tuple(column for column, keep in zip(layout.columns, kept, strict=True) if keep)
    return replace(layout, columns=columns, rows=rows) if rows else None
