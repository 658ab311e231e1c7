"""Table specifications: rows and columns of the paper's tables, with the runs and published number of each cell."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from regtta_bench.paper.method_configs import MethodConfig, make_method_config
from regtta_bench.paper.numbers import PaperNumber, table_numbers
from regtta_bench.paper.protocol import TASKS, Task
from regtta_bench.paper.records import PaperTable
from regtta_bench.paper.settings import SETTINGS, Options, Part, Setting
from regtta_bench.paper.table_files import paper_table

SOURCE_SCORES = ("valid_dimensions", "subspace_dimensions", "correlation")
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
class CellSpec:
    """One number of a table.

    Attributes:
        setting: the experimental setting.
        parts: the shifts that the number is averaged over.
        score: name of the score in the paper.
        protocol: ``offline`` or ``online``; ``source`` for properties of the source model.
        method_config: the method to run; None for properties of the source model.
        task: the task of the source models.
        paper: the published number; None if there is none.
    """

    setting: Setting
    parts: tuple[Part, ...]
    score: str
    protocol: str
    method_config: MethodConfig | None
    task: Task = "regression"
    paper: PaperNumber | None = None

    @property
    def group(self) -> tuple[object, ...]:
        """Key shared by comparable cells: the same score on the same shifts and task."""
        return (self.setting.name, self.parts, self.score, self.protocol, self.task)


@dataclass(frozen=True)
class RowSpec:
    """A table row: its name and one cell per column; None where the table is blank."""

    name: str
    cells: tuple[CellSpec | None, ...]


@dataclass(frozen=True)
class TableSpec:
    """Specification of a table: its rows, columns and cells, without values.

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
    rows: tuple[RowSpec, ...]
    notes: tuple[str, ...] = field(default=())

    def cells(self) -> Iterable[CellSpec]:
        """Iterate over the cells of all rows."""
        return (cell for row in self.rows for cell in row.cells if cell is not None)


def make_table_spec(
    label: str,
    *,
    settings: Mapping[str, str] | None = None,
    options: Options | None = None,
    reading: str = "",
    extra_rows: Mapping[str, Mapping[str, MethodConfig]] | None = None,
) -> TableSpec:
    """Return the specification of the paper's table ``label``.

    Args:
        label: LaTeX label of the table.
        settings: setting by data set of the paper; data sets without an entry are dropped. By default every data set
            in its own setting.
        options: overrides for the rows of SSA and feature alignment.
        reading: name of these overrides, appended to the table's name and title.
        extra_rows: additional rows by name, as configurations by setting.
    """
    table = paper_table(label)
    numbers = iter(table_numbers(table))
    rows, kept = [], [False] * len(table.columns)
    for row in table.rows:
        cells = tuple(_cell(table, next(numbers), settings, options) for _ in table.columns)
        kept = [was or cell is not None for was, cell in zip(kept, cells, strict=True)]
        if any(cells):
            rows.append(RowSpec(_row_name(row.name, cells), cells))
    rows += _make_extra_rows(rows, extra_rows or {})
    return TableSpec(
        name=_file_name(_use_setting_names(label.partition(":")[2], settings), reading),
        title=_use_setting_names(table.caption.rstrip("."), settings) + (f", reading: {reading}" if reading else ""),
        label=label,
        columns=tuple(
            _column_name(column.label, index, rows) for index, column in enumerate(table.columns) if kept[index]
        ),
        rows=tuple(
            RowSpec(row.name, tuple(c for c, keep in zip(row.cells, kept, strict=True) if keep)) for row in rows
        ),
        notes=table.notes,
    )


def _file_name(name: str, reading: str) -> str:
    return "-".join([name, *reading.split()])


def _cell(
    table: PaperTable, number: PaperNumber, settings: Mapping[str, str] | None, options: Options | None
) -> CellSpec | None:
    name = _SETTING_OF.get((table.name, number.dataset), number.dataset)
    if settings is not None:
        if number.dataset not in settings:
            return None
        name = settings[number.dataset]
    setting = SETTINGS[name]
    task = _task(number)
    parts = setting.column_parts(_COLUMN_OF.get((table.label, number.dataset), number.column))
    if number.score in SOURCE_SCORES:
        return CellSpec(setting, parts, number.score, "source", None, task, number)
    changed: dict[str, object] = {key: value for key, value in number.options.items() if key != "task"}
    changed |= _OPTIONS_OF.get((table.label, number.method or ""), {})
    if number.method in ("ssa", "feature_alignment"):
        changed |= options or {}
    method_config = make_method_config(setting, number.method or "source", changed, task=task)
    return CellSpec(setting, parts, number.score, table.protocol, method_config, task, number)


def _task(number: PaperNumber) -> Task:
    if number.score == "accuracy":
        return "classification"
    named = number.options.get("task", "regression")
    return next(task for task in TASKS if task == named)


def _row_name(name: str, cells: tuple[CellSpec | None, ...]) -> str:
    """Return the row's name; a row named after a data set is renamed to its setting."""
    cell = next(cell for cell in cells if cell is not None)
    named = cell.paper is not None and name == cell.paper.dataset
    return cell.setting.name if named else name


def _column_name(label: str, index: int, rows: list[RowSpec]) -> str:
    """Return the column's title; a column named after a data set is renamed to its setting."""
    cells = [row.cells[index] for row in rows if row.cells[index] is not None]
    first = cells[0] if cells else None
    if first is not None and first.paper is not None and first.paper.column == first.paper.dataset:
        return first.setting.name
    return label


def _use_setting_names(text: str, settings: Mapping[str, str] | None) -> str:
    """Replace names of data sets by those of their settings, so that a subset is never labelled as the full set."""
    for whole, part in (settings or {}).items():
        text = re.sub(rf"(?i)\b{whole}\b|(?<=_){whole}|{whole}(?=_)", part, text)
    return text


def _make_extra_rows(rows: list[RowSpec], extra_rows: Mapping[str, Mapping[str, MethodConfig]]) -> list[RowSpec]:
    """Return the extra rows: the cells of the first row with another method and no published number."""
    first = rows[0]
    specs = []
    for name, method_configs in extra_rows.items():
        cells = tuple(
            replace(cell, method_config=method_configs[cell.setting.name], paper=None)
            if cell is not None and cell.method_config is not None and cell.setting.name in method_configs
            else None
            for cell in first.cells
        )
        if any(cells):
            specs.append(RowSpec(name, cells))
    return specs


def restrict_table(table_spec: TableSpec, settings: Iterable[str]) -> TableSpec | None:
    """Return ``table_spec`` restricted to the cells of ``settings``; None if no cell remains."""
    wanted = set(settings)
    cells = [
        tuple(cell if cell is not None and cell.setting.name in wanted else None for cell in row.cells)
        for row in table_spec.rows
    ]
    kept = [any(row[index] is not None for row in cells) for index in range(len(table_spec.columns))]
    rows = tuple(
        RowSpec(row.name, tuple(cell for cell, keep in zip(mine, kept, strict=True) if keep))
        for row, mine in zip(table_spec.rows, cells, strict=True)
        if any(mine)
    )
    columns = tuple(column for column, keep in zip(table_spec.columns, kept, strict=True) if keep)
    return replace(table_spec, columns=columns, rows=rows) if rows else None
