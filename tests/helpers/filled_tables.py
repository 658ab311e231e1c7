"""Filled tables with chosen values."""

import dataclasses
import math

from regtta_bench.paper.table_specs import make_table_spec
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.tables.aggregate import CellValue, ComparisonTable, fill_table

MISSING = 4


def make_value(mean, sd=0.01, **facts):
    """Return a value over two source models that differ by 0.2."""
    return CellValue({0: mean - 0.1, 1: mean + 0.1}, sd, **({"runs": 6, "diverged": 0, "missing": 0} | facts))


# Values of the rows of tab:svhn; the others are missing.
VALUES = {
    "source": make_value(0.4, None),
    "dann": make_value(math.nan, math.nan, diverged=6),
    "ttt": make_value(0.3, diverged=2),
    "bn_adapt": CellValue({}, None, 0, 0, 6),
    "prototype": CellValue({}, 0.1, 4, 0, 2),
    "ssa": make_value(0.5114, 0.0268, best=True),
    "oracle": make_value(-12.3456, 1.5),
}


def filled_svhn(*, sources=2, seeds=3, label="tab:svhn", settings=None):
    """Return the table of SVHN with the same values in every column."""
    table_spec = make_table_spec(label, settings=settings)
    empty = fill_table(table_spec, SweepPlan(sources, seeds), [])
    values = tuple(
        tuple(VALUES.get(row.name, CellValue({}, None, 0, 0, MISSING)) for _ in row.cells) for row in table_spec.rows
    )
    return dataclasses.replace(empty, values=values)


def with_comparisons(*lines):
    return dataclasses.replace(
        filled_svhn(), comparison_tables=(ComparisonTable("R2 offline, svhn", "SSA(k=100)", lines),)
    )
