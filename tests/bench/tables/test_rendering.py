import dataclasses
import io
import math
import re

import numpy as np
import pandas as pd
import pytest

from helpers.filled_tables import filled_svhn
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.tables import TextTable, make_text_tables, render_csv, render_latex, render_markdown
from regtta_bench.tables.aggregate import CellValue, Comparison, ComparisonTable, FilledTable
from regtta_bench.tables.comparison import Difference
from regtta_bench.tables.text_tables import TextCell, TextRow


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
    text = render_markdown(make_text_tables(filled_svhn()))
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
    text = render_latex(make_text_tables(filled_svhn()))
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
    frame = read([filled_svhn()], smoke=True).set_index(["row", "score"])
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
    filled = filled_svhn()
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
