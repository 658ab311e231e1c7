import csv
import io

import pytest

from helpers.shift_runs import PLAN, make_records
from regtta_bench.shifts import SHIFTS as SUITE
from regtta_bench.shifts import select_shifts
from regtta_bench.shifts.results import collect_scores
from regtta_bench.shifts.shift_tables import (
    group_shifts,
    make_shift_tables,
    make_summary_tables,
    render_scores_csv,
    render_summary_csv,
)
from regtta_bench.tables import CSV_COLUMNS, render_latex, render_markdown

SHIFTS = select_shifts(["wine-white-to-red", "wine-red-to-white", "bike-2011-to-2012", "wine-white-drift"])
VALUES = {
    "source": {
        "wine-white-to-red": -1234.5,
        "wine-red-to-white": 0.2,
        "bike-2011-to-2012": 0.8,
        "wine-white-drift": 0.1,
    },
    "ssa": {"wine-white-to-red": 0.25, "wine-red-to-white": 0.1, "bike-2011-to-2012": 0.7, "wine-white-drift": None},
}


@pytest.fixture(scope="module")
def scores():
    def score(shift, row, source_seed, seed):
        if row not in VALUES or (row, shift.name, source_seed) == ("ssa", "bike-2011-to-2012", 4):
            return ...
        return VALUES[row][shift.name]

    table, records = make_records(SHIFTS, score)
    return collect_scores(SHIFTS, table, PLAN, records)


def cells(tables, title, row):
    (table,) = (table for table in tables if table.title.startswith(title))
    (found,) = (line for line in table.rows if line.name == row)
    return dict(zip(table.columns, (cell.text for cell in found.cells), strict=True))


def test_a_cell_has_the_mean_without_clipping_and_the_clipped_gain(scores):
    tables = make_shift_tables(scores)
    natural = "Development half, natural, tables"
    assert cells(tables, natural, "source") == {"wine-white-to-red": "-1.23e+03", "bike-2011-to-2012": "0.800"}
    assert cells(tables, natural, "ssa") == {
        "wine-white-to-red": "0.250, +1.250 [+1.250, +1.250]",
        "bike-2011-to-2012": "0.700 (1 missing), -0.100 [-0.100, -0.100]",
    }
    assert cells(tables, "Held-out half, natural, tables", "ssa") == {
        "wine-red-to-white": "0.100, -0.100 [-0.100, -0.100]"
    }
    assert cells(tables, "Development half, sensors, wine", "ssa") == {
        "wine-white-drift": "diverged 5 of 5, -1.100 [-1.100, -1.100]"
    }


def test_the_summary_has_a_table_per_half(scores):
    development, held_out = make_summary_tables(scores)
    assert (development.title, held_out.title) == ("Summary, development half", "Summary, held-out half")
    assert cells((development,), "Summary", "ssa")["worst shift"] == "-1.100 wine-white-drift"
    assert cells((development,), "Summary", "ssa")["R²"] == "5 diverged"
    assert cells((held_out,), "Summary", "ssa")["harmed by > 0.02"] == "1"
    assert cells((held_out,), "Summary", "ssa")["on a par"] == "–"  # neither reference was run


def test_a_smoke_run_is_marked(scores):
    for table in (*make_summary_tables(scores, smoke=True), *make_shift_tables(scores, smoke=True)):
        assert table.title.startswith("SMOKE RUN")
    assert "True" in render_summary_csv(scores, smoke=True)


def test_the_csv_has_a_line_per_shift_row_and_protocol_and_says_the_half(scores):
    lines = list(csv.DictReader(io.StringIO(render_scores_csv(scores))))
    assert set(CSV_COLUMNS) < lines[0].keys()
    assert len(lines) == 4 * 2 * 2
    (line,) = (
        line
        for line in lines
        if (line["column"], line["row"], line["protocol"]) == ("wine-red-to-white", "ssa", "offline")
    )
    assert (line["half"], line["kind"], line["data"], line["setting"]) == ("held-out", "natural", "wine", "wine-red")
    assert float(line["mean"]) == float(line["clipped_mean"]) == pytest.approx(0.1)
    assert float(line["less_source"]) == pytest.approx(-0.1)
    (source,) = (
        line
        for line in lines
        if (line["column"], line["row"], line["protocol"]) == ("wine-white-to-red", "source", "offline")
    )
    assert (float(source["mean"]), float(source["clipped_mean"])) == (-1234.5, -1)


def test_the_summary_csv_agrees_with_the_gains(scores):
    lines = {(line["half"], line["row"]): line for line in csv.DictReader(io.StringIO(render_summary_csv(scores)))}
    assert lines.keys() == {(half, row) for half in ("development", "held-out") for row in ("source", "ssa")}
    expected = (1.25 - 0.1 - 1.1) / 3
    assert float(lines["development", "ssa"]["gain"]) == pytest.approx(expected)


def test_every_format_renders(scores):
    tables = (*make_summary_tables(scores), *make_shift_tables(scores))
    assert render_markdown(tables).count("###") == len(tables) == 2 + 3
    assert render_latex(tables).count(r"\begin{tabular}") == len(tables)


def test_groups_hold_every_shift_once_and_few_columns():
    groups = group_shifts(SUITE)
    assert sorted(shift.name for group in groups for shift in group) == sorted(shift.name for shift in SUITE)
    assert max(map(len, groups)) == 8
    assert [group[0].half for group in groups] == sorted(group[0].half for group in groups)
