"""Every table of the paper's LaTeX source against the data files, cell by cell."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from regtta_bench.paper import TABLE_LABELS, paper_table

BESIDE = Path(__file__).parents[4] / "shared" / "paper" / "ssa.tex"
SOURCE = Path(os.environ.get("REGTTA_PAPER") or BESIDE)

needs_source = pytest.mark.skipif(
    not SOURCE.is_file(), reason=f"no source of the paper at {SOURCE}: set REGTTA_PAPER to its ssa.tex"
)

FLOAT = re.compile(r"\\begin\{(table\*?|wraptable|figure\*?)\}(.*?)\\end\{\1\}", re.DOTALL)
TABULAR = re.compile(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", re.DOTALL)
SYMBOLS = {
    r"\proposedmethod": "SSA",
    r"\checkmark": "✓",
    r"\rightarrow": "→",
    r"\uparrow": "↑",
    r"\downarrow": "↓",
    r"\pm": "±",
    r"\#": "#",
    "R^2": "R²",
    "^*": "*",
    "~": " ",
}
DECORATION = re.compile(r"\\(mathbf|textbf|underline|small|rotatebox\{90\})|[${}]")
RULES = re.compile(r"\\(toprule|bottomrule|cmidrule(\(\w+\))?\{[\d-]+\})")
SPAN = re.compile(r"\\multicolumn\{(\d+)\}\{\w+\}\{(.*)\}")
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?")


@dataclass
class Tabular:
    """Cells of one tabular as text, with spans repeated; ``header`` holds the rows above the first inner rule."""

    header: list[list[str]]
    body: list[list[str]]


def clean(cell: str) -> str:
    for command, text in SYMBOLS.items():
        cell = cell.replace(command, text)
    cell = DECORATION.sub("", cell).replace("_", " ")
    return " ".join(cell.split()).replace("²(", "² (")


def cells_of(line: str) -> list[str]:
    found: list[str] = []
    for cell in line.split("&"):
        span = SPAN.fullmatch(cell.strip())
        found += [clean(span[2])] * int(span[1]) if span else [clean(cell)]
    return found


def lines_of(text: str) -> list[list[str]]:
    return [cells_of(line) for line in text.split(r"\\") if line.strip()]


def read(tabular: str) -> Tabular:
    flat = re.sub(r"\\shortstack\{([^}]*)\}", lambda match: match[1].replace(r"\\", " "), tabular)
    flat = RULES.sub("", flat)
    above, rule, below = flat.partition(r"\midrule")
    if not rule:  # one table has no rule inside: its first line is the header
        above, _, below = flat.partition(r"\\")
    body = lines_of(below.replace(r"\midrule", ""))
    if len(set(body[-1])) == 1 and len(body[-1]) > 1 and "average" in body[-1][0]:
        body.pop()  # a footnote under the table
    return Tabular(lines_of(above), body)


def tabulars(text: str) -> dict[str, Tabular]:
    """Every tabular of every table by the label before it; those in figures hold pictures."""
    found: dict[str, Tabular] = {}
    for kind, content in FLOAT.findall(text):
        if kind.startswith("figure"):
            continue
        for match in TABULAR.finditer(content):
            label = re.findall(r"\\label\{([^}]*)\}", content[: match.start()])[-1]
            assert label not in found
            found[label] = read(match[1])
    return found


@pytest.fixture(scope="module")
def source() -> str:
    text = SOURCE.read_text(encoding="utf-8")
    return re.sub(r"(?<!\\)%.*", "", text)


@pytest.fixture(scope="module")
def printed(source) -> dict[str, Tabular]:
    return tabulars(source)


def headings(tabular: Tabular, heads: int) -> list[str]:
    """Return the headings of the cells, prefixed by the group above if there is one."""
    *groups, last = tabular.header
    if not groups:
        return last[heads:]
    return [f"{group}: {name}" if group else name for group, name in zip(groups[0], last, strict=True)][heads:]


def row_label(heads: list[str]) -> str:
    """``KL ✓`` of two heads; ``Source``, which spans two, once."""
    spanned = len(heads) == 2 and heads[0] == heads[1] != "✓"
    return " ".join(filter(None, heads[:1] if spanned else heads)) or "(none)"


@needs_source
def test_all_tables_of_the_paper_are_present(source, printed):
    assert list(printed) == list(TABLE_LABELS)
    assert r"\begin{tabular}" not in FLOAT.sub("", source)


@needs_source
@pytest.mark.parametrize("label", TABLE_LABELS)
def test_every_cell_is_as_printed(printed, label):
    tabular, table = printed[label], paper_table(label)
    heads = len(tabular.body[0]) - len(table.columns)
    assert heads in (0, 1, 2)
    assert headings(tabular, heads) == [column.label for column in table.columns]
    assert [len(line) for line in tabular.body] == [heads + len(row.cells) for row in table.rows]
    for line, row in zip(tabular.body, table.rows, strict=True):
        assert row.header.label == row_label(line[:heads])
        for text, cell in zip(line[heads:], row.cells, strict=True):
            assert cell.text == text
            match = NUMBER.fullmatch(text)
            assert cell.diverged == (text == "-") == (match is None)
            mean, sd = match.groups() if match else (None, None)
            assert cell.mean == (None if mean is None else float(mean))
            assert cell.sd == (None if sd is None else float(sd))


@needs_source
def test_no_number_is_left_over(source):
    """Compare the numbers in the order of the text, without parsing rows and cells."""
    contents = [content for kind, content in FLOAT.findall(source) if not kind.startswith("figure")]
    bodies = [match[1] for content in contents for match in TABULAR.finditer(content)]
    for label, body in zip(TABLE_LABELS, bodies, strict=True):
        rows = paper_table(label).rows
        below = body.partition(r"\midrule" if r"\midrule" in body else "Correlation")[2]
        bare = re.sub(r"\\multicolumn\{\d\}|R\^2", "", below)
        ours = " ".join(part for row in rows for part in (row.header.label, *map(str, row.cells)))
        assert re.findall(r"[\d.]*\d", bare) == re.findall(r"[\d.]*\d", ours)
        assert len(re.findall(r"& *-(?!\d)", bare)) == sum(cell.diverged for row in rows for cell in row.cells)


def test_sweeps_vary_the_option_of_their_heading():
    for label in TABLE_LABELS:
        for header in (*paper_table(label).columns, *(row.header for row in paper_table(label).rows)):
            values = [value for key, value in header.options.items() if key in ("k", "lr", "batch_size")]
            if values and label != "atab:correlation_table":
                assert values == [float(header.label.removesuffix(" (ours)"))]


def test_the_parser_handles_latex_markup():
    text = r"""\begin{table}\label{t}\begin{tabular}{ll}\toprule
    ~ & \multicolumn{2}{c}{Female $\rightarrow$ Male} \\ \cmidrule(lr){2-3}
    Method & \rotatebox{90}{\shortstack{Defocus\\blur}} & $R^2 (\uparrow)$ \\ \midrule
    {\proposedmethod} (ours) & $\mathbf{{0.511}_{\pm 0.03}}$ & - \\ \bottomrule
    \end{tabular}\end{table}"""
    tabular = tabulars(text)["t"]
    assert headings(tabular, 1) == ["Female → Male: Defocus blur", "Female → Male: R² (↑)"]
    assert tabular.body == [["SSA (ours)", "0.511 ± 0.03", "-"]]
