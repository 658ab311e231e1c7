"""Rows of the suite: every method, with the library's defaults unless the row says otherwise.

TTT and DANN are left out, since they train source models of their own and cannot be paired with the others; Tent is for
classifiers. Rows of methods that are not registered are left out too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from regtta.methods import METHODS, create_method, method_options
from regtta.options import check_choice
from regtta_bench.paper import (
    GUARD_PRESETS,
    CellSpec,
    GuardPreset,
    MethodConfig,
    MethodConfigFactory,
    RowSpec,
    Setting,
    TableSpec,
    Task,
    is_supported,
    make_method_config,
    method_names,
)
from regtta_bench.shifts.suite import Shift

SOURCE, BN_ADAPT, SSA_PAPER, ORACLE = "source", "bn_adapt", "ssa, paper", "oracle"
SCORE = "R2"
OMITTED = ("ttt", "tent")
ROWS_NOTE = "TTT and DANN are not shown: they train source models of their own, which cannot be paired."

Options = Mapping[str, object]


@dataclass(frozen=True)
class Row:
    """A row of the tables.

    Attributes:
        name: name of the row.
        method: name of a method or of a sum of methods.
        options: options that differ from the library's defaults.
        guards: name of the guards.
    """

    name: str
    method: str
    options: Options = field(default_factory=lambda: MappingProxyType({}), hash=False)
    guards: GuardPreset = "default"

    @property
    def is_registered(self) -> bool:
        """True if the library has all of the row's methods."""
        return set(method_names(self.method)) <= METHODS.keys()

    def method_config(self, setting: Setting, task: Task) -> MethodConfig | None:
        """Return the configuration in ``setting``; None if the method does not support it."""
        if not is_supported(setting, self.method, task):
            return None
        return MethodConfig(create_method(self.method, **self.options), task, guards=self.guards)


def _paper_ssa(setting: Setting, task: Task) -> MethodConfig:
    """Return SSA as in the paper's tables: its k without a limit, BatchNorm by the batch, learning rate 1e-3."""
    return make_method_config(setting, "ssa", {"k": setting.k, "batch_norm": "batch", "lr": 1e-3}, task=task)


_FIRST = (Row(SOURCE, "source"), Row(BN_ADAPT, "bn_adapt"), Row("recalibrate_once", "recalibrate_once"))
_SSA = (
    Row("ssa", "ssa"),
    Row("ssa, source BatchNorm", "ssa", MappingProxyType({"batch_norm": "source", "k": "auto", "lr": 1e-2})),
    Row("ssa, SAFE", "ssa", guards="safe"),
    Row("ssa+consistency", "ssa+consistency"),
)
_LAST = (Row("auto", "auto"), Row("auto, SAFE", "auto", guards="safe"), Row(ORACLE, "oracle"))


def suite_rows() -> dict[str, MethodConfigFactory]:
    """Return the configurations of the rows by name, in the order of the tables.

    Example:
        >>> list(suite_rows())[:2], list(suite_rows())[-1]
        (['source', 'bn_adapt'], 'oracle')
    """
    named = {name for row in (*_FIRST, *_SSA, *_LAST) for name in method_names(row.method)}
    built_in = [name for name, cls in METHODS.items() if cls.__module__.startswith("regtta.methods.")]
    others = [Row(name, name) for name in built_in if name not in named.union(OMITTED)]
    rows: dict[str, MethodConfigFactory] = {row.name: row.method_config for row in _FIRST if row.is_registered}
    rows[SSA_PAPER] = _paper_ssa
    rows.update({row.name: row.method_config for row in (*_SSA, *others, *_LAST) if row.is_registered})
    return rows


def parse_row(text: str) -> MethodConfigFactory:
    """Parse a further row: ``NAME`` or ``NAME:key=value,...`` with options of the method, and ``guards=safe``.

    Example:
        >>> from regtta_bench.shifts.suite import SOURCES
        >>> config = parse_row("ssa:k=25,guards=safe")(SOURCES["wine-red"], "regression")
        >>> config.method.k, config.guards
        (25, 'safe')
    """
    name, _, settings = text.partition(":")
    assignments = [part for part in settings.split(",") if part]
    presets = [part.partition("=")[2] for part in assignments if part.startswith("guards=")]
    for preset in presets:
        check_choice("guards", preset, GUARD_PRESETS)
    guards: GuardPreset = next((preset for preset in GUARD_PRESETS if preset in presets), "default")
    options = method_options(name, [part for part in assignments if not part.startswith("guards=")])
    return Row(text, name, MappingProxyType(options), guards).method_config


def make_table(shifts: tuple[Shift, ...], rows: Mapping[str, MethodConfigFactory]) -> TableSpec:
    """Return the table with one row per method and one column per shift; blank where a method does not fit."""
    make_cell = partial(_cell, rows)
    return TableSpec(
        name="shifts",
        title="Shifts",
        label="",
        columns=tuple(shift.name for shift in shifts),
        rows=tuple(RowSpec(name, tuple(make_cell(name, shift) for shift in shifts)) for name in rows),
    )


def _cell(rows: Mapping[str, MethodConfigFactory], name: str, shift: Shift) -> CellSpec | None:
    config = rows[name](shift.setting, "regression")
    return None if config is None else CellSpec(shift.setting, (shift.part,), SCORE, "offline", config)
