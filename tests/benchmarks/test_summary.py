"""Tests of the page in the documentation, from synthetic records of a GPU."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.speed import summary
from benchmarks.speed.cases.floor import FLOOR
from benchmarks.speed.cases.step import DEFAULTS, STRICT
from benchmarks.speed.findings import Fact, Findings, Row, Spread, Table
from benchmarks.speed.record import FILE, Record, write
from helpers.speed_findings import EVERYTHING

MAKER = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "make_speed.py"))
ABOUT = {"device": "NVIDIA H200", "quick": False, "regtta": "0.1.0", "torch": "2.11", "python": "3.12", "cuda": "13.0"}


def times(ratio):
    return Spread(ratio, ratio, ratio, 1)


def row(name, milliseconds):
    ratios = {DEFAULTS: times(milliseconds / 40), STRICT: times(milliseconds / 100)}
    return Row(name, ratios, times(milliseconds), 64_000 / milliseconds, 1000 + milliseconds)


STEP = Findings(
    "The step: ResNet-50",
    tables=(
        Table(
            "ResNet-50, batch 64",
            "times as fast",
            (
                row(STRICT, 100.0),
                row(DEFAULTS, 40.0),
                row("regtta, float32", 50.0),
                row("regtta, bfloat16, channels last, compiled, captured", 10.0),
            ),
        ),
    ),
)
SERVING = Findings(
    "Without a shift",
    tables=(
        Table(
            "ResNet-50, adapter in float32",
            "times the time",
            (
                Row("bare forward", {"bare forward": times(1)}),
                Row("predict", {"bare forward": times(1.25)}),
                Row("adapt behind a gate", {"bare forward": times(1.5)}),
            ),
        ),
    ),
)
COLLECT = Findings(
    "Collecting: ResNet-50, 640 samples",
    tables=(
        Table(
            "Collecting: ResNet-50, 640 samples",
            "times the time",
            (
                Row("inference alone"),
                Row("collect", {"inference alone": times(1.75)}, times(2500)),
                Row("of that the spectrum, once", {"inference alone": times(0.25)}),
            ),
        ),
    ),
)
FLOORS = Findings("The floor: ResNet-50, batch 64", facts=(Fact("bytes", 20.0, "GB"), Fact(FLOOR, 5.0, "ms")))
RECORD = Record(
    ABOUT,
    {
        "step/resnet50": STEP,
        "serving/resnet50": SERVING,
        "collect/resnet50": COLLECT,
        "floor/resnet50": FLOORS,
        "rest": EVERYTHING,
    },
)


def rows(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_step_is_compared_with_torch_defaults_and_strict_float32():
    assert rows(summary.steps(RECORD))[2] == [
        "ResNet-50, batch 64", "0.800 ×", "4.00 ×", "10.0 ×", "1,600", "6,400", "1,040 MiB", "1,010 MiB"
    ]  # fmt: skip


def test_fast_row_without_channels_last_is_used_for_tables():
    (table,) = STEP.tables
    flat = replace(table, rows=(*table.rows[:3], replace(table.rows[3], name="regtta, bfloat16, compiled, captured")))
    record = Record(ABOUT, {"step/mlp": replace(STEP, tables=(flat,))})
    assert rows(summary.steps(record))[2][2] == "4.00 ×"


def test_serving_and_collecting_are_relative_to_their_references():
    found = rows(summary.serving(RECORD))
    assert found[0] == ["", "predict", "adapt behind a gate"]
    assert found[2] == ["ResNet-50, adapter in float32", "1.25", "1.50"]
    assert rows(summary.collecting(RECORD))[2] == ["ResNet-50, 640 samples", "1.75", "0.250", "2.50"]


def test_measured_steps_are_shown_relative_to_the_floor():
    found = dict(rows(summary.floor(RECORD)))
    assert found[f"{DEFAULTS}, over the floor"] == "8.00 ×"
    assert found["regtta, bfloat16, channels last, compiled, captured, over the floor"] == "2.00 ×"


def test_only_counts_are_shown_without_times():
    alone = Record(ABOUT, {"floor/resnet50": replace(FLOORS, facts=FLOORS.facts[:1])})
    assert rows(summary.floor(alone))[2:] == [["bytes", "20.0 GB"]]


def test_page_has_a_section_for_every_measurement(tmp_path):
    folder = tmp_path / MAKER["FOLDERS"]["On a GPU"]
    folder.mkdir(parents=True)
    write(RECORD, folder / FILE)
    (folder / "curves.png").touch()
    text = MAKER["page"](tmp_path)
    titles = [line for line in text.splitlines() if line.startswith("##")]
    sections = [f"### {title}" for title in summary.SECTIONS]
    assert titles == ["## On a GPU", *sections, "## On a CPU", "## How it is measured"]
    assert "Measured on NVIDIA H200 with regtta 0.1.0" in text
    assert "](../results/speed/h200/curves.png)" in text
    assert text.count("Nothing has been measured here yet") == 1


def test_page_states_missing_measurements(tmp_path):
    assert MAKER["page"](tmp_path).count("Nothing has been measured here yet") == 2


@pytest.mark.parametrize("section", summary.SECTIONS)
def test_empty_record_has_no_sections(section):
    assert summary.SECTIONS[section](Record(ABOUT)) == ""
