"""Report of ``regtta reproduce``, built from the tables that it wrote."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from regtta.errors import InvalidFileError
from regtta.persistence import read_bounded
from regtta.report.content import Page, ReportCell, ReportFigure, ReportTable, Section, Tone
from regtta.report.figures import new_figure, root_figure
from regtta.report.formatting import format_model_count, format_number
from regtta.report.run_kinds import RunKind
from regtta_bench.tables.method_figures import MethodScores, draw_methods
from regtta_bench.tables.rendering import CSV_COLUMNS

_REQUIRED_COLUMNS = set(CSV_COLUMNS)
_NUMERIC = tuple(
    name for name in CSV_COLUMNS if name.startswith(("less_", "mean", "sd", "source_models", "paper_mean", "paper_sd"))
)
_MIN_FIGURE_ROWS = 4  # smallest number of rows that is drawn as a figure
_MAX_BYTES = 64 * 2**20  # the longest table of an experiment has about 100 KB
# Repetitions are bounded and stay within a line, so that the search takes linear time on any text.
_ORIGIN = re.compile(r"Made by `(?P<command>[^`\n]{1,2000})` from (?P<behind>[^,`\n]{1,500}\([^()`\n]{0,2000}\))")

CsvRow = Mapping[str, str]


def reproduction_page(tables: Sequence[Path], command: str) -> Page:
    """Return the page of CSV files written by ``regtta reproduce``.

    Args:
        tables: CSV files, one per experiment.
        command: shell command that reproduces the page.
    """
    lines = {path.stem: _read_table(path) for path in tables}
    first = next(iter(lines.values()))
    headline, tone, summary = _summarize(first)
    origins = {path.stem: _read_origin(path) for path in tables}
    smoke = any(line["smoke"] == "True" for mine in lines.values() for line in mine)
    return Page(
        title=f"Reproduction: {', '.join(lines)}",
        headline=headline,
        tone=tone,
        summary=summary,
        facts=tuple((name, text) for name, (_, text) in origins.items() if text),
        warnings=tuple(_find_warnings(lines, smoke=smoke)),
        sections=tuple(section for mine in lines.values() for section in _make_sections(mine)),
        command="\n".join([*(typed for typed, _ in origins.values() if typed), command]),
    )


def _read_table(path: Path) -> list[CsvRow]:
    raw = read_bounded(path, _MAX_BYTES)
    try:
        lines: list[CsvRow] = list(csv.DictReader(io.StringIO(raw.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidFileError(f"{path} cannot be read as a table: {error}.") from error
    if not lines or not lines[0].keys() >= _REQUIRED_COLUMNS:
        raise InvalidFileError(
            f"{path} is not a table of regtta reproduce. Pass its output folder or one of its CSV files."
        )
    _check_numbers(path, lines)
    return lines


def _check_numbers(path: Path, lines: Sequence[CsvRow]) -> None:
    for line_number, line in enumerate(lines, start=2):
        if len(line) != len(lines[0]) or None in line.values():
            raise InvalidFileError(
                f"Expected {len(lines[0])} cells in each line of {path}, found fewer or more in line {line_number}. "
                "Run regtta reproduce again."
            )
        for name in _NUMERIC:
            try:
                _number(line[name])
            except (TypeError, ValueError) as error:  # a missing cell is None
                raise InvalidFileError(
                    f"Expected a number as {name} in line {line_number} of {path}, found {line[name]!r}."
                ) from error


def _read_origin(path: Path) -> tuple[str, str]:
    """Return the command and the environment of a table, as stated in the Markdown file beside it."""
    beside = path.with_suffix(".md")
    text = read_bounded(beside, _MAX_BYTES).decode("utf-8", errors="replace") if beside.is_file() else ""
    found = _ORIGIN.search(text)
    return (found["command"], found["behind"]) if found else ("", "")


def _summarize(lines: Sequence[CsvRow]) -> tuple[str, Tone, tuple[str, ...]]:
    """Return headline, tone and summary for SSA against the source model, from the first row that compares them."""
    rows = [line for line in lines if line["row"] == "ssa"]
    if not rows:
        return "No table here compares SSA with the source model.", "unknown", ()
    ours = next((line for line in rows if line["less_source"]), rows[0])
    if not ours["less_source"]:
        why = "diverged" if ours["diverged"] != "0" else "has not been run"
        return f"SSA {why} on {ours['setting']}: it cannot be compared with the source model.", "unknown", ()
    gap, low, high = (_number(ours[key]) for key in ("less_source", "less_source_low", "less_source_high"))
    better = -1 if ours["score"] in ("RMSE", "MAE") else 1
    tone: Tone = "undecided"
    if not math.isnan(low) and low * high > 0:
        tone = "better" if gap * better > 0 else "worse"
    words = {"better": "is ahead of", "worse": "is behind", "undecided": "cannot be told from"}[tone]
    difference = f"{format_number(gap, signed=True)} in {_score_label(ours['score'])}"
    headline = f"SSA {words} the source model on {ours['setting']}: {difference}."
    sure = (
        ""
        if math.isnan(low)
        else f" The 95 % interval is {format_number(low, signed=True)} to {format_number(high, signed=True)}."
    )
    return headline, tone, (f"Paired over {format_model_count(int(ours['source_models']))}.{sure}",)


def _find_warnings(lines: Mapping[str, Sequence[CsvRow]], *, smoke: bool) -> list[str]:
    found = ["A smoke run: every number here is far too small a run to mean anything."] if smoke else []
    every = [line for mine in lines.values() for line in mine]
    gone = dict.fromkeys(_display_name(line) for line in every if line["diverged"] != "0")
    if gone:
        found.append(f"Diverged, in part or wholly: {', '.join(gone)}.")
    if any(line["missing"] != "0" for line in every):
        found.append("Runs are missing: some numbers are not there yet.")
    if any(line["source_models"] == "1" for line in every):
        found.append("Some numbers rest on one source model, which settles nothing.")
    return found


def _display_name(line: CsvRow) -> str:
    """Return the row name or, for tables whose columns are the variants, table and column."""
    if line["row"] in (line["score"], line["setting"]):
        return f"{line['table'].replace('_', ' ')} at {line['column']}"
    return line["row"]


def _make_sections(lines: Sequence[CsvRow]) -> list[Section]:
    sections = []
    for table in dict.fromkeys(line["table"] for line in lines):
        mine = [line for line in lines if line["table"] == table]
        sections.append(Section(table.replace("_", " "), tables=_make_grids(mine), figures=_draw_pictures(mine)))
    return sections


def _make_grids(lines: Sequence[CsvRow]) -> tuple[ReportTable, ...]:
    columns = tuple(dict.fromkeys(line["column"] for line in lines))
    rows = []
    for row in dict.fromkeys(line["row"] for line in lines):
        cells = {line["column"]: line for line in lines if line["row"] == row}
        rows.append((ReportCell(row), *(_cell_entry(cells[c]) if c in cells else ReportCell("") for c in columns)))
    note = "In brackets the paper's number. Bold: the best of what shares source models, and all that tie with it."
    return (ReportTable("Numbers", ("", *columns), tuple(rows), (note,)), *_difference_grids(lines))


def _cell_entry(line: CsvRow) -> ReportCell:
    paper = (
        f" ({format_number(_number(line['paper_mean']))})"
        if line["paper_mean"]
        else " (–)"
        if line["paper_table"]
        else ""
    )
    if line["missing"] != "0":
        return ReportCell(f"not run{paper}")
    if line["diverged"] != "0":
        return ReportCell(f"diverged{paper}")
    mean, sd = _number(line["mean"]), _number(line["sd"])
    spread = "" if math.isnan(sd) else f" ± {sd:.3f}"
    return ReportCell(f"{format_number(mean)}{spread}{paper}", line["best"] == "True", mean)


def _difference_grids(lines: Sequence[CsvRow]) -> tuple[ReportTable, ...]:
    first = next((line for line in lines if line["less_source"] or line["less_ssa"]), None)
    if first is None:
        return ()
    mine = [line for line in lines if line["score"] == first["score"] and (line["less_source"] or line["less_ssa"])]
    several = len({line["column"] for line in mine}) > 1
    rows = tuple(
        (
            ReportCell(f"{line['row']}, {line['column']}" if several else line["row"]),
            *(_difference_entry(line, key) for key in ("less_ssa", "less_source")),
        )
        for line in mine
    )
    title = f"Differences in {_score_label(first['score'])}, paired over source models"
    return (ReportTable(title, ("", "less SSA [95 %]", "less the source model [95 %]"), rows),)


def _difference_entry(line: CsvRow, key: str) -> ReportCell:
    gap, low, high = (_number(line[name]) for name in (key, f"{key}_low", f"{key}_high"))
    if math.isnan(gap):
        return ReportCell("–")
    interval = "" if math.isnan(low) else f" [{format_number(low, signed=True)}, {format_number(high, signed=True)}]"
    return ReportCell(format_number(gap, signed=True) + interval, low * high > 0, gap)


def _draw_pictures(lines: Sequence[CsvRow]) -> tuple[ReportFigure, ...]:
    """Draw the first column of a table or, if it has few rows, its first row over the columns."""
    lines = [line for line in lines if line["missing"] == "0"]
    if not lines:
        return ()
    first = lines[0]
    rows = [line for line in lines if line["column"] == first["column"]]
    names = [line["row"] for line in rows]
    if len(rows) < _MIN_FIGURE_ROWS:
        rows = [line for line in lines if line["row"] == first["row"] and line["score"] == first["score"]]
        names = [line["column"] for line in rows]
    if len(rows) < _MIN_FIGURE_ROWS:
        return ()
    report = MethodScores(
        score=_score_label(first["score"]),
        streams=(first["setting"],),
        means={name: np.array([_number(line["mean"])]) for name, line in zip(names, rows, strict=True)},
        sds={name: np.array([_number(line["sd"])]) for name, line in zip(names, rows, strict=True)},
        published={name: np.array([_number(line["paper_mean"])]) for name, line in zip(names, rows, strict=True)},
        sources=int(first["source_models"]),
    )
    axes = new_figure(6.4, 1.1 + 0.28 * len(rows)).add_subplot()
    figure = root_figure(draw_methods(report, axes))
    alt = f"A mark for each of {len(rows)} rows with its deviation, and the paper's number beside it."
    caption = "Scores far from the others are written at the edge."
    return (ReportFigure(f"{report.score} at a glance", alt, caption, figure),)


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _score_label(name: str) -> str:
    return "R²" if name == "R2" else name.replace("_", " ")


def find_tables(folder: Path) -> list[Path]:
    """Return the sorted CSV tables of ``regtta reproduce`` in ``folder``: those with a LaTeX table beside them."""
    return sorted(path for path in folder.glob("*.csv") if path.with_suffix(".tex").is_file())


def _reproduction_run_page(paths: Sequence[Path], command: str) -> Page:
    tables = [table for path in paths for table in (find_tables(path) if path.is_dir() else [path])]
    return reproduction_page(tables, command)


REPRODUCE_RUN = RunKind(
    name="reproduce",
    output="a folder or .csv table of regtta reproduce",
    matches=lambda path: bool(find_tables(path)) if path.is_dir() else path.suffix == ".csv",
    page=_reproduction_run_page,
)
