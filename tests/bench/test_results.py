"""Committed results: every number can be reproduced from the committed runs."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.speed import record as speed_record
from benchmarks.speed.figures import figures_of
from benchmarks.speed.rendering import page
from benchmarks.speed.run_cases import PAGE
from regtta.guards import SAFE, RepairableShift
from regtta_bench.cli.reproduce import ReproduceOptions, run_experiments
from regtta_bench.cli.reproduce_shifts import run_shifts
from regtta_bench.label_shift.label_shift_tables import make_study_tables
from regtta_bench.label_shift.study import read_records
from regtta_bench.stress.stress_settings import GUARDS, STRESS_SETTINGS
from regtta_bench.stress.stress_tables import table_files
from regtta_bench.sweep.store import RunStore

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SHIFTS = RESULTS / "shifts"
# Folders of the paper's experiments; the tests of the benchmarks check the results of their studies.
STUDIES = {"no_normalisation", "select", SHIFTS.name}
NAMES = sorted({path.parent.name for path in RESULTS.glob("*/runs.jsonl")} - STUDIES)
SEEDS = {"california": 3, "svhn-subset": 1}  # adaptation seeds of the committed runs
SEEDS_OPTION = {"california": None, "svhn-subset": 1}  # --seeds
SOURCE_MODELS = {"california": 5, "svhn-subset": 3}


class FailingListener:
    def on_start(self, runs, found):
        pytest.fail("no run is expected")

    on_training = on_run = on_start


def test_there_are_results():
    assert NAMES == ["california", "svhn-subset"]


@pytest.mark.parametrize("name", NAMES)
def test_committed_tables_match_the_committed_runs(name, tmp_path):
    shutil.copy(RESULTS / name / "runs.jsonl", tmp_path)
    run_experiments(
        ReproduceOptions(names=(name,), out=tmp_path, seeds=SEEDS_OPTION[name], tables_only=True), FailingListener()
    )
    for ending in ("md", "csv", "tex"):
        assert (tmp_path / f"{name}.{ending}").read_text() == (RESULTS / name / f"{name}.{ending}").read_text()


@pytest.mark.skipif(not SHIFTS.is_dir(), reason="no committed results of the suite of shifts")
def test_committed_tables_of_the_shifts_match_the_committed_runs(tmp_path):
    shutil.copy(SHIFTS / "runs.jsonl", tmp_path)
    run_shifts(ReproduceOptions(names=("shifts",), out=tmp_path, tables_only=True), FailingListener())
    for name in ("shifts.md", "shifts.csv", "shifts.tex", "shifts-summary.csv"):
        assert (tmp_path / name).read_text() == (SHIFTS / name).read_text()


# Rows of the two main tables of SVHN's subset. Its other tables repeat some of their cells; all others were not run.
SVHN_ROWS = {
    "source", "bn_adapt", "prototype", "feature_restoration", "variance_minimization", "rsd", "ssa", "oracle",
}  # fmt: skip
SVHN_NOT_RUN = {"ttt", "ttt: its source", "feature_alignment", "ssa, clipped at the rank", "oracle, all parameters"}


def read_lines(name):
    with (RESULTS / name / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", NAMES)
def test_committed_tables_are_complete(name):
    lines = read_lines(name)
    page = (RESULTS / name / f"{name}.md").read_text()
    assert "missing" not in page
    assert "outdated" not in page
    assert all(line["smoke"] == "False" for line in lines)
    expected = (str(SOURCE_MODELS[name]), str(SEEDS[name]))
    assert {(line["source_models"], line["seeds"]) for line in lines} == {expected}
    assert all("0" in (line["runs"], line["missing"]) for line in lines)  # no cell is partly missing
    if name == "california":
        assert all(line["missing"] == "0" for line in lines)
        assert "not run" not in page


@pytest.mark.parametrize(
    ("table", "not_run"), [("svhn-subset", SVHN_NOT_RUN | {"dann"}), ("svhn-subset_online", SVHN_NOT_RUN)]
)
def test_the_main_tables_of_svhn_have_these_rows(table, not_run):
    lines = [line for line in read_lines("svhn-subset") if line["table"] == table]
    assert {line["row"] for line in lines if line["missing"] == "0"} == SVHN_ROWS
    assert {line["row"] for line in lines if line["missing"] != "0"} == not_run
    assert all(line["diverged"] == "0" for line in lines)


def numbers(name, table, column):
    lines = [line for line in read_lines(name) if (line["table"], line["column"]) == (table, column)]
    return {line["row"]: line for line in lines}


def shown(line):
    """Format a number as in the README: ours and, if there is one, the paper's. No cell is outdated, see above."""
    ours = f"{float(line['mean']):.3f}" if line["mean"] else "diverged" if line["missing"] == "0" else "not run"
    paper = f" ({float(line['paper_mean']):.3f})" if line["paper_mean"] else " (–)" if line["paper_table"] else ""
    return (ours + paper).replace("-", "−")


def test_the_readme_matches_the_committed_tables():
    text = (ROOT / "README.md").read_text()
    (table,) = re.findall(r"\| offline R².*?\n\n", text, re.DOTALL)
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.strip().splitlines()[2:]]
    rows = {name: values for name, *values in cells}
    columns = [numbers("california", "california", "R² (↑)"), numbers("svhn-subset", "svhn-subset", "R² (↑)")]
    names = {
        "Source": "source",
        "BN-adapt": "bn_adapt",
        "Prototype": "prototype",
        "FR": "feature_restoration",
        "VM": "variance_minimization",
        "RSD": "rsd",
        "TTT, own source models": "ttt",
        "DANN, own source models": "dann",
        "naive alignment": "feature_alignment",
        "**SSA**": "ssa",
        "SSA, learning rate 1e-4": "ssa, affine 1e-4",
        "Oracle (labels)": "oracle",
    }
    assert rows.keys() == names.keys()
    for title, cells in rows.items():
        expected = [shown(column[names[title]]) if names[title] in column else "" for column in columns]
        assert cells == expected, title


def summary_rows():
    """Return the rows of the summary of the held-out shifts by name."""
    with (SHIFTS / "shifts-summary.csv").open() as file:
        return {row["row"]: row for row in csv.DictReader(file) if row["half"] == "held-out"}


def with_interval(row, key):
    text = f"{float(row[key]):+.3f} [{float(row[f'{key}_low']):.3f}, {float(row[f'{key}_high']):.3f}]"
    return text.replace("-", "−")


def cells_after(path, header):
    """Return the cells of the table that begins with ``header``, by the name in the first column."""
    (table,) = re.findall(rf"^{re.escape(header)}.*?\n\n", path.read_text(), re.DOTALL | re.MULTILINE)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    return {name: cells for name, *cells in lines}


def test_the_readme_matches_the_summary_of_the_shifts():
    names = {
        "Source": "source",
        "BN-adapt": "bn_adapt",
        "SSA as in the paper": "ssa, paper",
        "SSA": "ssa",
        "**Auto**": "auto",
        "Auto under `SAFE`": "auto, SAFE",
    }
    found, rows = cells_after(ROOT / "README.md", "| | mean gain over the source model |"), summary_rows()
    assert found.keys() == names.keys()
    for title, cells in found.items():
        row = rows[names[title]]
        gain = "0.000" if title == "Source" else with_interval(row, "gain")
        assert cells == [gain, f"{row['harmed']} of {row['shifts']}", f"{float(row['on_par']):.0%}".replace("%", " %")]


def test_the_page_of_shifts_matches_their_summary():
    found, rows = cells_after(ROOT / "docs" / "shifts.md", "| | R² ≥ −1 |"), summary_rows()
    assert {"source", "bn_adapt", "ssa, paper", "ssa", "auto", "auto, SAFE"} < found.keys()
    for title, cells in found.items():
        name = title.removesuffix(" (labels)")
        row = rows[name]
        reference, unadapted = name == "ssa, paper", name == "source"
        worst = "" if unadapted else f"{float(row['worst_gain']):+.3f}".replace("-", "−") + f" {row['worst_shift']}"
        assert cells == [
            f"{float(row['clipped_mean']):.3f}",
            "" if unadapted else with_interval(row, "gain"),
            "" if reference else with_interval(row, "less_ssa"),
            "" if unadapted else row["harmed"],
            f"{float(row['on_par']):.0%}".replace("%", " %"),
            worst,
        ]


# --- speed -----------------------------------------------------------------------------------------------------------

SPEED = sorted(path.parent for path in RESULTS.glob(f"speed/*/{speed_record.FILE}"))


@pytest.mark.parametrize("folder", SPEED, ids=lambda folder: folder.name)
def test_the_speed_page_matches_its_json(folder):
    record = speed_record.read(folder / speed_record.FILE)
    assert not record.made_with["quick"]
    assert (folder / PAGE).read_text(encoding="utf-8") == page(record)
    assert {path.name for path in folder.iterdir()} == {speed_record.FILE, PAGE, *figures_of(record)}


# --- label shift -----------------------------------------------------------------------------------------------------

LABEL_SHIFT = RESULTS / "label-shift"
STUDIED = ("demo", "california")


@pytest.mark.parametrize("name", STUDIED)
def test_label_shift_tables_match_the_committed_results(name):
    for file, text in make_study_tables(read_records(LABEL_SHIFT / f"{name}.jsonl")).items():
        assert (LABEL_SHIFT / file).read_text(encoding="utf-8") == text, file


def label_shift_table(name, table):
    with (LABEL_SHIFT / f"{name}-{table}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows_under(heading):
    """Return the cells of the first table under a heading of the page, without its header."""
    page = (ROOT / "docs" / "label-shift.md").read_text(encoding="utf-8")
    part = page.split(f"## {heading}\n")[1]
    lines = re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE)[0].strip().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def area(name, question, signal):
    rows = label_shift_table(name, "roc")
    (row,) = [r for r in rows if (r["question"], r["signal"], r["models"], r["n"]) == (question, signal, "all", "all")]
    return f"{float(row['auc']):.3f} ({float(row['found_at_5_percent']):.0%})"


def test_the_label_shift_page_matches_the_areas():
    rows = rows_under("Signals")
    assert len(rows) >= 6
    for question, signal, *cells in rows:
        assert cells == [area(name, question, signal) for name in STUDIED], (question, signal)


def test_the_label_shift_page_matches_the_verdicts():
    for kind, samples, *cells in rows_under("The verdict"):
        for name, cell in zip(STUDIED, cells, strict=True):
            (row,) = [
                r
                for r in label_shift_table(name, "verdicts")
                if (r["kind"], r["n"], r["models"]) == (kind, samples, "second half")
            ]
            shares = [f"{float(row[verdict]):.0%}" for verdict in ("none", "inputs", "labels", "both or unclear")]
            assert cell == " / ".join(shares), (kind, samples, name)


def test_the_label_shift_page_matches_the_scores():
    for stream, *cells in rows_under("The conservative mode"):
        names = ("Source", "SSA, BN batch", "SSA, BN source", "output free, BN source", "SSA guarded by SAFE")
        found = {r["arm"]: r for r in label_shift_table("california", "caution") if r["stream"] == stream}
        assert cells == [f"{float(found[name]['mean']):.3f}".replace("-", "−") for name in names], stream


@pytest.mark.parametrize("name", sorted(STRESS_SETTINGS))
def test_stress_tables_match_the_committed_runs(name, monkeypatch):
    # The committed runs were made before RepairableShift joined SAFE, as the pages on guards and streams say.
    earlier = tuple(guard for guard in SAFE if not isinstance(guard, RepairableShift))
    monkeypatch.setattr("regtta_bench.stress.stress_specs.GUARDS", {**GUARDS, "safe": earlier})
    folder = RESULTS / "stress" / name
    files = table_files(list(RunStore(folder / "runs.jsonl")), name)
    assert {path.name for path in folder.iterdir()} == {*files, "runs.jsonl", f"{name}.png", f"{name}.svg"}
    for file, text in files.items():
        assert (folder / file).read_text() == text, file


def safety(name):
    with (RESULTS / "stress" / name / f"{name}-safety.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["guards"] == "safe"]


def test_the_guards_page_matches_the_tables():
    text = (ROOT / "docs" / "guards.md").read_text()
    missed = {name: [row for row in safety(name) if row["met"] != "True"] for name in sorted(STRESS_SETTINGS)}
    assert not missed["demo"]
    assert not missed["california"]
    assert {row["kind"] for row in missed["svhn-subset"]} == {"iid"}
    counts = [len(safety(name)) for name in ("demo", "california", "svhn-subset")]
    assert [f"none of {counts[0]}", f"none of {counts[1]}"] == re.findall(r"none of \d+", text)
    assert f"{len(missed['svhn-subset'])} of {counts[2]} on" in " ".join(text.split())
    worst = {row["method"]: float(row["worst"]) for row in safety("svhn-subset") if row["kind"] == "iid"}
    for method, words in {"ssa": "SSA loses up to {:.3f}", "bn_adapt": "BN-adapt {:.3f}"}.items():
        assert words.format(-worst[method]) in text
    assert f"({worst['ssa_window']:+.3f} in the worst case)" in text
