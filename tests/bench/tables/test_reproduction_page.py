"""The page of committed tables: every number on it is one of the CSV's."""

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from regtta.errors import InvalidFileError
from regtta_bench.tables.reproduction_page import reproduction_page

RESULTS = Path(__file__).parents[3] / "results"
NAMES = ("california", "svhn-subset")


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def committed(name):
    return RESULTS / name / f"{name}.csv"


@pytest.fixture(scope="module")
def pages():
    return {name: reproduction_page([committed(name)], f"regtta report results/{name}") for name in NAMES}


@pytest.fixture
def edited(tmp_path):
    """Return a function that writes a copy of California's main table with changed rows."""

    def write(change=lambda line: line, *, beside=True):
        lines = [change(dict(line)) for line in read(committed("california")) if line["table"] == "california"]
        path = tmp_path / "california.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(lines)
        if beside:
            shutil.copy(committed("california").with_suffix(".md"), tmp_path)
        return path

    return write


def page_of(path):
    return reproduction_page([path], "regtta report there")


def number(text):
    return float(text.replace("−", "-"))


def shown(value, *, signed=False):
    """Three decimals as people write them: a true minus, and no sign before a zero."""
    text = f"{float(value):{'+' if signed else ''}.3f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def line_of(name, row, column="R² (↑)"):
    return next(x for x in read(committed(name)) if (x["table"], x["row"], x["column"]) == (name, row, column))


@pytest.mark.parametrize(
    ("name", "tone", "words", "models"),
    [("california", "worse", "is behind", 5), ("svhn-subset", "better", "is ahead of", 3)],
)
def test_the_headline_is_ssa_against_the_source_model(pages, name, tone, words, models):
    page, line = pages[name], line_of(name, "ssa")
    assert page.tone == tone
    gap = shown(line["less_source"], signed=True)
    assert page.headline == f"SSA {words} the source model on {name}: {gap} in R²."
    low, high = (shown(line[f"less_source_{end}"], signed=True) for end in ("low", "high"))
    assert page.summary == (f"Paired over {models} source models. The 95 % interval is {low} to {high}.",)


@pytest.mark.parametrize("name", NAMES)
def test_the_grids_hold_every_number_of_the_table(pages, name):
    lines = read(committed(name))
    sections = {section.title: section for section in pages[name].sections}
    assert list(sections) == list(dict.fromkeys(line["table"].replace("_", " ") for line in lines))
    seen = 0
    for line in lines:
        grid = sections[line["table"].replace("_", " ")].tables[0]
        (row,) = [row for row in grid.rows if row[0].text == line["row"]]
        entry = row[grid.columns.index(line["column"])]
        paper = f" ({shown(line['paper_mean'])})" if line["paper_mean"] else " (–)" if line["paper_table"] else ""
        if line["missing"] != "0":
            assert entry.text == f"not run{paper}"
        elif line["diverged"] != "0":
            assert entry.text == f"diverged{paper}"
        else:
            spread = f" ± {float(line['sd']):.3f}" if line["sd"] else ""
            assert entry.text == f"{shown(line['mean'])}{spread}{paper}"
            assert entry.value == float(line["mean"])
        assert entry.bold == (line["best"] == "True")
        seen += 1
    filled = sum(
        1 for section in sections.values() for row in section.tables[0].rows for entry in row[1:] if entry.text
    )
    assert seen == filled == len(lines)


@pytest.mark.parametrize("name", NAMES)
def test_the_differences_are_those_of_the_main_table(pages, name):
    grid = pages[name].sections[0].tables[1]
    assert grid.title == "Differences in R², paired over source models"
    rows = {row[0].text: row[1:] for row in grid.rows}
    lines = [line for line in read(committed(name)) if line["table"] == name and line["score"] == "R2"]
    assert list(rows) == [line["row"] for line in lines if line["less_ssa"] or line["less_source"]]
    for line in lines:
        for key, entry in zip(("less_ssa", "less_source"), rows.get(line["row"], ()), strict=False):
            if not line[key]:
                assert entry.text == "–"
                continue
            low, high = (float(line[f"{key}_{end}"]) for end in ("low", "high"))
            assert entry.value == float(line[key])
            numbers = (shown(value, signed=True) for value in (line[key], low, high))
            assert entry.text == "{} [{}, {}]".format(*numbers)
            assert entry.bold == (low > 0 or high < 0)


def test_the_figure_shows_the_first_column(pages):
    (picture,) = pages["california"].sections[0].figures
    axes = picture.figure.axes[0]
    rows = dict(zip(axes.get_yticks(), (label.get_text() for label in axes.get_yticklabels()), strict=True))
    lines = {
        x["row"]: x for x in read(committed("california")) if (x["table"], x["column"]) == ("california", "R² (↑)")
    }
    assert list(rows.values()) == list(lines)
    points = axes.containers[0].lines[0].get_xydata()
    drawn = {rows[y]: x for x, y in points}
    edge = {rows[text.get_position()[1]]: text.get_text() for text in axes.texts}
    for name, line in lines.items():
        if name in drawn:
            assert drawn[name] == float(line["mean"])
        elif line["mean"]:
            assert number(edge[name].split(",")[0]) == pytest.approx(float(line["mean"]), abs=0.005)
        else:
            assert edge[name] == "diverged"
    assert drawn.keys() | edge.keys() == lines.keys()
    (diamonds,) = [line for line in axes.lines if line.get_label() == "published"]
    published = {rows[y]: x for x, y in diamonds.get_xydata()}
    assert {name: float(lines[name]["paper_mean"]) for name in published} == published
    assert "ssa" in published


def test_a_table_with_few_rows_is_drawn_along_its_columns(pages):
    section = next(s for s in pages["california"].sections if s.title == "california ablation k-text")
    axes = section.figures[0].figure.axes[0]
    columns = [x["column"] for x in read(committed("california")) if x["table"] == "california_ablation_k-text"]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(dict.fromkeys(columns))


def test_commands_and_environment_come_from_the_markdown(pages):
    both = reproduction_page([committed(name) for name in NAMES], "regtta report results")
    assert both.command.splitlines() == [
        "regtta reproduce california", "regtta reproduce svhn-subset --seeds 1", "regtta report results",
    ]  # fmt: skip
    facts = dict(both.facts)
    assert facts["california"].startswith("760 runs on cpu (regtta 0.1.0, torch ")
    assert facts["svhn-subset"].startswith("24 runs on NVIDIA H200 (")
    assert all(text.endswith(")") for text in facts.values())
    assert both.title == "Reproduction: california, svhn-subset"
    assert both.headline == pages["california"].headline
    assert len(both.sections) == sum(len(page.sections) for page in pages.values())


def test_the_markdown_is_optional(edited):
    page = page_of(edited(beside=False))
    assert (page.facts, page.command) == ((), "regtta report there")


# --- warnings ------------------------------------------------------------------------------------


def test_diverged_rows_are_named_once(pages, edited):
    (found,) = pages["california"].warnings
    assert "california ablation k-text at 50" in found
    (found,) = page_of(edited(lambda line: line | diverged(line, "rsd"))).warnings
    assert found == "Diverged, in part or wholly: rsd."


def diverged(line, row):
    return {"diverged": "15", "mean": "", "sd": ""} if line["row"] == row else {}


def test_a_table_without_problems_has_no_warnings(edited):
    assert page_of(edited(lambda line: line | {"diverged": "0"})).warnings == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"smoke": "True"}, "A smoke run: every number here is far too small a run to mean anything."),
        ({"missing": "2"}, "Runs are missing: some numbers are not there yet."),
        ({"source_models": "1"}, "Some numbers rest on one source model, which settles nothing."),
        ({"diverged": "3"}, "Diverged, in part or wholly: tent."),
    ],
)
def test_each_warning_is_triggered_by_one_row(edited, change, said):
    def edit(line):
        line["diverged"] = "0"
        return line | ({"row": "tent"} | change if line["row"] == "bn_adapt" else {})

    assert page_of(edited(edit)).warnings == (said,)


def test_missing_runs_are_neither_diverged_nor_numbers(edited):
    def drop(line):
        gone = {"missing": "3", "mean": "", "sd": ""} if line["row"] == "bn_adapt" else {}
        return line | gone | diverged(line, "rsd")

    (section,) = page_of(edited(drop)).sections
    (row,) = [row for row in section.tables[0].rows if row[0].text == "bn_adapt"]
    assert [entry.text.split(" (")[0] for entry in row[1:]] == ["not run"] * 3
    axes = section.figures[0].figure.axes[0]
    rows = dict(zip(axes.get_yticks(), (label.get_text() for label in axes.get_yticklabels()), strict=True))
    edge = {rows[text.get_position()[1]]: text.get_text() for text in axes.texts}
    assert edge["rsd"] == "diverged"
    assert edge.get("bn_adapt") != "diverged"


def test_the_verdict_uses_the_row_of_ssa(edited):
    """SSA diverged; its variants did not."""

    def diverge(line):
        gone = {"diverged": "5", "mean": "", "less_source": "", "less_source_low": "", "less_source_high": ""}
        return line | (gone if line["row"] == "ssa" else {})

    page = page_of(edited(diverge))
    released = line_of("california", "ssa, released")
    assert shown(released["less_source"], signed=True) not in page.headline or "released" in page.headline
    assert page.tone in ("worse", "unknown")


def test_an_error_that_grows_is_worse_though_the_number_rises(edited):
    """Where the first score is an error, a positive difference is a loss."""
    page = page_of(edited(lambda line: line | ({"less_source": ""} if line["score"] == "R2" else {})))
    line = line_of("california", "ssa", "RMSE (↓)")
    assert float(line["less_source_low"]) > 0
    assert page.tone == "worse"
    assert (
        page.headline
        == f"SSA is behind the source model on california: {shown(line['less_source'], signed=True)} in RMSE."
    )


def test_without_ssa_there_is_no_verdict(edited):
    page = page_of(edited(lambda line: line | {"row": line["row"].replace("ssa", "tent")}))
    assert (page.tone, page.headline) == ("unknown", "No table here compares SSA with the source model.")


def test_a_single_source_model_has_no_interval(edited):
    page = page_of(edited(lambda line: line | {"less_source_low": "", "less_source_high": "", "source_models": "1"}))
    assert page.tone == "undecided"
    assert page.summary == ("Paired over one source model.",)
    differences = page.sections[0].tables[1].rows
    assert not any(row[2].bold for row in differences)
    assert all("[" not in row[2].text for row in differences)


def test_few_rows_are_not_worth_a_figure(edited):
    path = edited()
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], *(line for line in lines if ",source," in line)]), encoding="utf-8")
    assert [section.figures for section in page_of(path).sections] == [()]


# --- invalid files -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\x00\x01", "table,row\n"])
def test_a_foreign_csv_is_refused_by_name(tmp_path, text):
    path = tmp_path / "foreign.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFileError, match="foreign.csv"):
        page_of(path)


def test_bytes_that_are_not_text_raise(tmp_path):
    (tmp_path / "foreign.csv").write_bytes(b"\xff\xfe\x00table")
    with pytest.raises(InvalidFileError, match="cannot be read as a table"):
        page_of(tmp_path / "foreign.csv")


@pytest.mark.parametrize("column", ["smoke", "missing", "source_models", "mean"])
def test_a_table_without_a_column_raises(edited, column):
    path = edited(lambda line: {name: value for name, value in line.items() if name != column})
    with pytest.raises(InvalidFileError, match="is not a table of regtta reproduce"):
        page_of(path)


@pytest.mark.parametrize("column", ["mean", "source_models"])
def test_an_invalid_number_raises(edited, column):
    with pytest.raises(InvalidFileError, match="california.csv"):
        page_of(edited(lambda line: line | {column: "many"}))


def test_numbers_on_the_page_are_finite(pages):
    values = [
        entry.value
        for page in pages.values()
        for section in page.sections
        for grid in section.tables
        for row in grid.rows
        for entry in row[1:]
        if entry.value is not None
    ]
    assert len(values) > 200
    assert all(math.isfinite(value) for value in values)
    assert not any("nan" in entry.text for page in pages.values() for s in page.sections for g in s.tables
                   for row in g.rows for entry in row)  # fmt: skip
    assert np.ptp(values) > 0
