"""Tables to fill: their rows and columns are the paper's, each cell with what to run for it and the paper's number."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from regtta.experiments.paper import PaperNumber, PaperTable, numbers_of, paper_table
from regtta.experiments.reproduce.arms import Arm, arm_of
from regtta.experiments.reproduce.settings import SETTINGS, Options, Part, Setting
from regtta.experiments.scoring import TASKS, Task

OF_THE_SOURCE = ("valid_dimensions", "subspace_dimensions", "correlation")
SMALLER_IS_BETTER = ("RMSE", "MAE")

# Which setting a data set of the paper's tables means, where it is not the one of its name.
_SETTING_OF: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("vit", "svhn"): "svhn-vit",
        ("biwi-multitask", "biwi"): "biwi-multitask",
        ("subspace", "cifar10"): "cifar10c",
    }
)
# What single tables do otherwise: the naive alignment beside the subspace dimensions takes all raw dimensions, and the
# correlation on Biwi Kinect is that of one model.
_OPTIONS_OF: Mapping[tuple[str, str], Options] = MappingProxyType(
    {("tab:subspace_dim", "feature_alignment"): MappingProxyType({"k": None})}
)
_COLUMN_OF: Mapping[tuple[str, str], str] = MappingProxyType(
    {("atab:correlation_table", "biwi"): "female_to_male_pitch"}
)


@dataclass(frozen=True)
class Cell:
    """One number to make.

    Attributes:
        setting: where.
        parts: over which shifts it is the mean.
        score: as the paper names it.
        protocol: ``offline`` or ``online``; ``source`` for what is measured on source models alone.
        arm: what is run; None for what is measured on source models alone.
        task: what the source models predict.
        paper: the paper's number; None where it has none.
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
        """Equal for cells that can be compared: the same quantity on the same source models."""
        return (self.setting.name, self.parts, self.score, self.protocol, self.task)


@dataclass(frozen=True)
class Row:
    """A row of the table: its name and one cell for each column; None where there is nothing."""

    name: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Layout:
    """A table to fill.

    Attributes:
        name: short, unlike any other of its experiment.
        title: above the table.
        label: of the paper's table.
        columns: their titles.
        rows: from the top.
        notes: below the table.
    """

    name: str
    title: str
    label: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    def cells(self) -> Iterable[Cell]:
        """All of them."""
        return (cell for row in self.rows for cell in row.cells if cell is not None)


def layout_of(
    label: str,
    *,
    settings: Mapping[str, str] | None = None,
    options: Options | None = None,
    reading: str = "",
    more: Mapping[str, Mapping[str, Arm]] | None = None,
) -> Layout:
    """The paper's table ``label``, as something to run.

    Args:
        label: of the table.
        settings: which setting to take for a data set of the paper; data sets that it does not name are left out. By
            default all, each in the setting of its name.
        options: of every method that has a ``k`` here, beyond the paper's.
        reading: what these options are called.
        more: rows that the paper does not have, by their names: arms by setting.
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
    """Rows named for a data set go by the setting's own name."""
    cell = next(cell for cell in cells if cell is not None)
    named = cell.paper is not None and name == cell.paper.dataset
    return cell.setting.name if named else name


def _column_name(label: str, index: int, rows: list[Row]) -> str:
    """Columns of a data set go by the setting's own name."""
    cells = [row.cells[index] for row in rows if row.cells[index] is not None]
    first = cells[0] if cells else None
    if first is not None and first.paper is not None and first.paper.column == first.paper.dataset:
        return first.setting.name
    return label


def _without_whole_names(text: str, settings: Mapping[str, str] | None) -> str:
    """A subset never goes by the name of the whole."""
    for whole, part in (settings or {}).items():
        text = re.sub(rf"(?i)\b{whole}\b|(?<=_){whole}|{whole}(?=_)", part, text)
    return text


def _more_rows(rows: list[Row], more: Mapping[str, Mapping[str, Arm]]) -> list[Row]:
    """A row for each of ``more``: the first row's cells with another arm, and without a number of the paper."""
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
    """``layout`` with the cells of these settings alone; None where it has none."""
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
