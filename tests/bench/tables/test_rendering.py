import dataclasses
import io
import math
import re

import numpy as np
import pandas as pd
import pytest

from regtta_bench.paper import paper_slips, paper_table
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.paper.table_specs import make_table_spec
from regtta_bench.sweep.run_specs import SweepPlan
from regtta_bench.tables import TextTable, make_text_tables, render_csv, render_latex, render_markdown
from regtta_bench.tables.aggregate import CellValue, Comparison, ComparisonTable, FilledTable, fill_table
from regtta_bench.tables.comparison import Difference
from regtta_bench.tables.text_tables import TextCell, TextRow

MISSING = 4


def value(mean, sd=0.01, **facts):
    """Return a value over two source models that differ by 0.2."""
    return CellValue({0: mean - 0.1, 1: mean + 0.1}, sd, **({"runs": 6, "diverged": 0, "missing": 0} | facts))


# Values of the rows of tab:svhn; the others are missing.
VALUES = {
    "source": value(0.4, None),
    "dann": value(math.nan, math.nan, diverged=6),
    "ttt": value(0.3, diverged=2),
    "bn_adapt": CellValue({}, None, 0, 0, 6),
    "prototype": CellValue({}, 0.1, 4, 0, 2),
    "ssa": value(0.5114, 0.0268, best=True),
    "oracle": value(-12.3456, 1.5),
}


def svhn(*, sources=2, seeds=3, label="tab:svhn", settings=None):
    """Return the table of SVHN with the same values in every column."""
    table_spec = make_table_spec(label, settings=settings)
    empty = fill_table(table_spec, SweepPlan(sources, seeds), [])
    values = tuple(
        tuple(VALUES.get(row.name, CellValue({}, None, 0, 0, MISSING)) for _ in row.cells) for row in table_spec.rows
    )
    return dataclasses.replace(empty, values=values)


def with_comparisons(*lines):
    return dataclasses.replace(svhn(), comparison_tables=(ComparisonTable("R2 offline, svhn", "SSA(k=100)", lines),))


def texts_of(table, name):
    """Return the texts of our row called ``name``."""
    (line,) = [line for line in table.rows if line.name == name and not line.from_paper]
    return [text.text for text in line.cells]


@pytest.fixture(scope="module")
def every_table():
    """Return all tables of all experiments with random numbers."""
    rng = np.random.default_rng(0)

    def drawn(cell):
        by_source = dict(enumerate(rng.normal(size=2)))
        return None if cell is None else CellValue(by_source, float(rng.random()), 2, 0, 0, bool(rng.random() < 0.5))

    line = Comparison("bn_adapt", Difference(-0.014, -0.017, -0.012, 5), None)
    return [
        FilledTable(
            table_spec=table_spec,
            values=tuple(tuple(drawn(cell) for cell in row.cells) for row in table_spec.rows),
            comparisons=tuple((None,) * len(row.cells) for row in table_spec.rows),
            comparison_tables=(ComparisonTable("R2 offline, svhn", "SSA(k=100, clip=False)", (line,)),),
            sources={cell.setting.name: 2 for cell in table_spec.cells()},
            seeds=1,
        )
        for one in EXPERIMENTS.values()
        for table_spec in one.table_specs({})
    ]


# --- texts ---------------------------------------------------------------------------------------


def test_a_value_is_shown_with_its_deviation():
    (table, *_) = make_text_tables(svhn())
    assert texts_of(table, "ssa") == ["0.511 ± 0.027"] * 3
    assert texts_of(table, "oracle") == ["-12.346 ± 1.500"] * 3
    assert texts_of(table, "source") == ["0.400"] * 3


def test_diverged_and_missing_runs_are_stated():
    (table, *_) = make_text_tables(svhn())
    assert texts_of(table, "dann") == ["diverged"] * 3
    assert texts_of(table, "ttt") == ["diverged 2 of 6"] * 3
    assert texts_of(table, "bn_adapt") == ["not run"] * 3
    assert texts_of(table, "prototype") == ["2 missing"] * 3


def test_outdated_runs_are_stated():
    (table, *_) = make_text_tables(svhn())
    assert not any("revision" in note for note in table.notes)
    outcomes = {"rsd": CellValue({}, None, 0, 0, 6, outdated=6), "oracle": CellValue({}, None, 0, 0, 6, outdated=2)}
    filled = svhn()
    values = tuple(
        tuple(outcomes.get(row.name, value) for value in values)
        for row, values in zip(filled.table_spec.rows, filled.values, strict=True)
    )
    (table, *_) = make_text_tables(dataclasses.replace(filled, values=values))
    assert texts_of(table, "rsd") == ["outdated"] * 3
    assert texts_of(table, "oracle") == ["not run"] * 3
    assert any(note.startswith("Outdated: made by an older revision") for note in table.notes)


def test_digits_follow_the_score():
    table_spec = make_table_spec("atab:classification_accuracy_mnist")
    filled = dataclasses.replace(fill_table(table_spec, SweepPlan(1, 1), []), values=((value(71.2345, 0.5),),) * 5)
    assert texts_of(make_text_tables(filled)[0], "ssa") == ["71.23 ± 0.50"]
    table_spec = make_table_spec("tab:subspace_dim", settings={"svhn": "svhn"})
    row = (value(353.0, None), value(14.46, 0.5), *[value(0.5)] * 3)
    filled = dataclasses.replace(fill_table(table_spec, SweepPlan(1, 1), []), values=(row,))
    assert texts_of(make_text_tables(filled)[0], "svhn")[:2] == ["353", "14.5 ± 0.5"]


def test_the_papers_numbers_are_below_ours_as_printed():
    (table, *_) = make_text_tables(svhn())
    for row in paper_table("tab:svhn").rows:
        index = next(i for i, line in enumerate(table.rows) if line.name == row.name and not line.from_paper)
        below = table.rows[index + 1]
        assert (below.name, below.from_paper) == ("paper", True)
        assert [text.text for text in below.cells] == [str(cell) for cell in row.cells]
        assert not any(text.bold for text in below.cells)


def test_additional_rows_have_no_row_of_the_paper():
    table_spec = EXPERIMENTS["svhn"].table_specs({})[0]
    (table, *_) = make_text_tables(fill_table(table_spec, SweepPlan(1, 1), []))
    names = [line.name for line in table.rows]
    assert names[-4:] == ["feature_alignment", "ttt: its source", "ssa, clipped at the rank", "oracle, all parameters"]
    assert names.count("paper") == 10


def test_only_the_best_is_bold():
    (table, *_) = make_text_tables(svhn())
    bold = {line.name for line in table.rows if any(text.bold for text in line.cells)}
    assert bold == {"ssa"}


def test_a_smoke_run_is_stated_in_the_title():
    assert make_text_tables(svhn(), smoke=True)[0].title == "SMOKE RUN, not a result: SVHN to MNIST, scores by method"
    assert make_text_tables(svhn())[0].title == "SVHN to MNIST, scores by method"


# --- differences ---------------------------------------------------------------------------------


def test_differences_have_an_interval_and_are_bold_if_it_excludes_zero():
    lines = (
        Comparison("bn_adapt", Difference(-0.0142, -0.017, -0.012, 5), Difference(0.5, -0.25, 1.0, 5)),
        Comparison("ssa", None, Difference(0.25, 0.1, 0.5, 5)),
        Comparison("ttt", Difference(math.nan, math.nan, math.nan, 0), None, own_source=True),
        Comparison("rsd", Difference(math.nan, math.nan, math.nan, 0), Difference(0.125, math.nan, math.nan, 1)),
    )
    (_, table) = make_text_tables(with_comparisons(*lines))
    assert table.title == "Differences in R2 offline, svhn"
    assert table.columns == ("less ssa [95%]", "less source [95%]")
    assert [[(text.text, text.bold) for text in line.cells] for line in table.rows] == [
        [("-0.014 [-0.017, -0.012]", True), ("+0.500 [-0.250, +1.000]", False)],
        [("itself", False), ("+0.250 [+0.100, +0.500]", True)],
        [("own source models", False)] * 2,
        [("–", False), ("+0.125", False)],
    ]
    assert table.notes[0].startswith("Paired over 5 source models")
    assert table.notes[1] == "ssa: SSA(k=100)."


def test_a_single_source_model_is_noted():
    line = Comparison("bn_adapt", Difference(0.5, math.nan, math.nan, 1), Difference(0.5, math.nan, math.nan, 1))
    (_, table) = make_text_tables(with_comparisons(line))
    assert table.notes[0].startswith("One source model")
    assert not any(text.bold for line in table.rows for text in line.cells)


def test_source_models_without_runs_are_noted():
    (_, table) = make_text_tables(fill_table(make_table_spec("tab:svhn"), SweepPlan(2, 3), []))
    assert {text.text for line in table.rows for text in line.cells} == {"–", "itself", "own source models"}
    assert not any("One source model" in note for note in table.notes)


# --- notes ---------------------------------------------------------------------------------------


def table_notes(filled):
    return make_text_tables(filled)[0].notes


def test_notes_state_the_number_of_models_and_seeds():
    assert table_notes(svhn())[0] == (
        "Source models: 2 (svhn); 3 adaptation seeds on each. ± is the standard deviation over source models."
    )
    assert table_notes(svhn(sources=1, seeds=1))[0] == (
        "Source models: 1 (svhn); 1 adaptation seed on each. ± is the standard deviation over adaptation seeds."
    )


def test_the_note_names_the_kind_of_deviation():
    # Three source models of SVHN and five of California, but one of UTKFace and of each kind of Biwi Kinect.
    first = table_notes(fill_table(make_table_spec("tab:ablation_subspace_weight"), SweepPlan(), []))[0]
    assert "3 (svhn), 1 (utkface), 1 (biwi), 5 (california)" in first
    assert "over source models" in first
    assert "over adaptation seeds" in first


def test_notes_name_the_papers_table_and_its_exceptions():
    text = " ".join(table_notes(svhn()))
    assert "tab:svhn" in text
    assert "TTT and DANN train source models of their own" in text
    assert "The oracle learns from the target's labels" in text
    assert "Bold" in text
    sweep = " ".join(table_notes(fill_table(make_table_spec("atab:lr_variation_svhn"), SweepPlan(), [])))
    for absent in ("TTT", "oracle", "Bold", "subset"):
        assert absent not in sweep


def test_the_tables_own_notes_are_kept():
    notes = table_notes(fill_table(make_table_spec("tab:utkface_mae"), SweepPlan(), []))
    assert set(paper_table("tab:utkface_mae").notes) < set(notes)


def test_the_subset_is_noted():
    whole, subset = svhn(), svhn(settings={"svhn": "svhn-subset"})
    assert any("subset of SVHN" in note for note in table_notes(subset))
    assert not any("subset of SVHN" in note for note in table_notes(whole))


def test_slips_of_the_paper_are_noted_once():
    slips = {slip.name: slip.text for slip in paper_slips()}
    notes = table_notes(fill_table(make_table_spec("tab:subspace_dim"), SweepPlan(), []))
    said = [note.removeprefix("A slip of the paper's: ") for note in notes if note.startswith("A slip of the paper's")]
    expected = {"utkface-source-mean", "utkface-default-run", "svhn-default-run", "biwi-default-run"}
    assert sorted(said) == sorted(slips[name] for name in (*expected, "utkface-naive-alignment"))
    assert not any(
        "slip" in note for note in table_notes(fill_table(make_table_spec("tab:california"), SweepPlan(), []))
    )


# --- Markdown ------------------------------------------------------------------------------------


def cells_of_markdown(line):
    """Return the cells of a Markdown row, with and without bold and italics."""
    inner = re.fullmatch(r"\| (.*) \|", line).group(1)
    marked = [text.strip() for text in re.split(r"(?<!\\)\|", inner)]
    plain = [re.fullmatch(r"(\*{0,2})(.*?)\1", text).group(2) for text in marked]
    return marked, [re.sub(r"\\([|*_])", r"\1", text) for text in plain]


def markdown_tables(text):
    """Return the rows of each table by its heading, header first."""
    parts = re.split(r"^### (.*)$", text, flags=re.MULTILINE)[1:]
    return {
        title: [line for line in body.splitlines() if line.startswith("|")]
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def test_markdown_reads_back_to_the_same_cells(every_table):
    for filled in every_table:
        tables = make_text_tables(filled)
        rendered = markdown_tables(render_markdown(tables))
        assert list(rendered) == [table.title for table in tables]
        for table in tables:
            header, rule, *lines = rendered[table.title]
            assert cells_of_markdown(header)[1] == ["", *table.columns]
            assert cells_of_markdown(rule)[0] == ["---", *["---:"] * len(table.columns)]
            assert len(lines) == len(table.rows)
            for text, line in zip(lines, table.rows, strict=True):
                marked, plain = cells_of_markdown(text)
                assert plain == [line.name, *(cell.text for cell in line.cells)]
                assert [mark.startswith("**") for mark in marked[1:]] == [cell.bold for cell in line.cells]


def test_markdown_has_the_paper_in_italics_and_the_best_in_bold():
    text = render_markdown(make_text_tables(svhn()))
    assert "| ssa | **0.511 ± 0.027** | **0.511 ± 0.027** | **0.511 ± 0.027** |" in text
    assert "| *paper* | *0.511 ± 0.03* | *2.024 ± 0.06* | *1.209 ± 0.04* |" in text
    assert text.count("**") == 3 * 2


def test_markdown_escapes_special_characters():
    table = TextTable("odd", ("score",), (TextRow("a|b*c_d", (TextCell("1 | 2", bold=True),)),), ("a_note*",))
    header, _, line = markdown_tables(render_markdown([table]))["odd"]
    assert len(cells_of_markdown(header)[1]) == len(cells_of_markdown(line)[1]) == 2
    assert cells_of_markdown(line)[1] == ["a|b*c_d", "1 | 2"]
    assert "- a\\_note\\*" in render_markdown([table])


def test_blank_cells_stay_empty():
    table = TextTable(
        "gap",
        ("a", "b"),
        (TextRow("x", (TextCell(""), TextCell("1"))), TextRow("paper", (TextCell(""), TextCell("2")), True)),
    )
    _, _, ours, paper = markdown_tables(render_markdown([table]))["gap"]
    assert cells_of_markdown(ours)[0] == ["x", "", "1"]
    assert cells_of_markdown(paper)[0] == ["*paper*", "", "*2*"]
    assert r"\emph{paper} &  & \emph{2} \\" in render_latex([table])


# --- LaTeX ---------------------------------------------------------------------------------------


def balanced(text):
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    return depth == 0


def test_latex_is_well_formed(every_table):
    for filled in every_table:
        tables = make_text_tables(filled)
        text = render_latex(tables)
        assert text.isascii()
        assert balanced(text)
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        assert not re.search(r"(?<!\\)[%#_~]", text)
        for environment in ("table", "tabular"):
            assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == len(tables)
        bodies = re.findall(r"\\toprule\n(.*?)\n\\midrule\n(.*?)\n\\bottomrule", text, flags=re.DOTALL)
        columns = re.findall(r"\\begin\{tabular\}\{(l(?:r+))\}", text)
        assert len(bodies) == len(columns) == len(tables)
        for table, (header, body), letters in zip(tables, bodies, columns, strict=True):
            rows = [header, *body.split("\n")]
            assert len(letters) == len(table.columns) + 1
            assert len(rows) == len(table.rows) + 1
            for row in rows:
                assert row.endswith(r" \\")
                assert len(re.findall(r"(?<!\\)&", row)) == len(table.columns)


def test_latex_has_the_paper_in_italics_and_the_best_in_bold():
    text = render_latex(make_text_tables(svhn()))
    best = r"\textbf{0.511 $\pm$ 0.027}"
    assert rf"ssa & {best} & {best} & {best} \\" in text
    paper = " & ".join(rf"\emph{{{mean} $\pm$ {sd}}}" for mean, sd in ((0.511, 0.03), (2.024, 0.06), (1.209, 0.04)))
    assert rf"\emph{{paper}} & {paper} \\" in text
    assert text.count(r"\textbf") == 3


def test_latex_escapes_special_characters():
    odd = r"50 % of a_b & {c} $d$ #e ~f ^g \h R² ±"
    table = TextTable("title", ("score",), (TextRow(odd, (TextCell(odd),)),), (odd,))
    text = render_latex([table])
    expected = r"50 \% of a\_b \& \{c\} \$d\$ \#e \textasciitilde{}f \textasciicircum{}g \textbackslash{}h R$^2$ $\pm$"
    assert rf"{expected} & {expected} \\" in text
    assert text.count(expected) == 3
    assert balanced(text)


# --- CSV -----------------------------------------------------------------------------------------


def read(tables, **chosen):
    return pd.read_csv(io.StringIO(render_csv(tables, **chosen)))


def test_csv_reads_back_to_the_same_numbers(every_table):
    frame = read(every_table)
    cells = [
        (filled, row, column, cell, value)
        for filled in every_table
        for row, values in zip(filled.table_spec.rows, filled.values, strict=True)
        for column, cell, value in zip(filled.table_spec.columns, row.cells, values, strict=True)
        if cell is not None
    ]
    assert len(frame) == len(cells)
    assert list(frame["mean"]) == [value.mean for *_, value in cells]
    assert list(frame["sd"]) == [value.sd for *_, value in cells]
    assert list(frame["best"]) == [value.best for *_, value in cells]
    assert list(frame["table"]) == [filled.table_spec.name for filled, *_ in cells]
    assert list(frame["row"]) == [row.name for _, row, *_ in cells]
    assert list(frame["column"].astype(str)) == [column for _, _, column, *_ in cells]
    assert list(frame["setting"]) == [cell.setting.name for *_, cell, _ in cells]
    assert list(zip(frame["score"], frame["protocol"], frame["task"], strict=True)) == [
        (cell.score, cell.protocol, cell.task) for *_, cell, _ in cells
    ]
    papers = [math.nan if c.paper is None or c.paper.cell.mean is None else c.paper.cell.mean for *_, c, _ in cells]
    np.testing.assert_array_equal(frame["paper_mean"], papers)
    assert not frame["smoke"].any()


def test_csv_has_the_facts_behind_every_number():
    frame = read([svhn()], smoke=True).set_index(["row", "score"])
    dann, ttt, ssa = (frame.loc[(name, "RMSE")] for name in ("dann", "ttt", "ssa"))
    assert (dann["runs"], dann["diverged"], dann["missing"]) == (6, 6, 0)
    assert math.isnan(dann["mean"])
    assert math.isnan(ttt["mean"])
    assert (ssa["paper_mean"], ssa["paper_sd"], ssa["paper_table"]) == (2.024, 0.06, "tab:svhn")
    assert (ssa["source_models"], ssa["seeds"]) == (2, 3)
    assert frame["smoke"].all()
    own = frame[frame["own_source"]].index.get_level_values("row")
    assert set(own) == {"dann", "ttt"}
    assert (frame.loc["prototype", "missing"] == 2).all()


def test_csv_has_the_available_differences():
    differences = {
        "bn_adapt": Comparison("bn_adapt", Difference(-0.014, -0.017, -0.012, 2), Difference(0.5, 0.25, 0.75, 2)),
        "ssa": Comparison("ssa", None, Difference(0.25, math.nan, math.nan, 1)),
        "ttt": Comparison("ttt", Difference(1.0, 1.0, 1.0, 2), Difference(1.0, 1.0, 1.0, 2), own_source=True),
    }
    filled = svhn()
    rows = tuple(tuple(differences.get(row.name) for _ in row.cells) for row in filled.table_spec.rows)
    frame = read([dataclasses.replace(filled, comparisons=rows)]).set_index(["row", "score"])
    names = [f"less_{name}{end}" for name in ("ssa", "source") for end in ("", "_low", "_high")]
    nan = math.nan
    for row, expected in (
        ("bn_adapt", [-0.014, -0.017, -0.012, 0.5, 0.25, 0.75]),
        ("ssa", [nan, nan, nan, 0.25, nan, nan]),
        ("ttt", [nan] * 6),
        ("rsd", [nan] * 6),
    ):
        np.testing.assert_array_equal(frame.loc[(row, "R2"), names].astype(float), expected)
