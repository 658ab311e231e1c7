"""Tables of constructed records, with scores that can be checked by hand."""

import csv
import io
import random

import numpy as np
import pytest

from helpers.stress_lines import line, source_line
from regtta_bench.stress.findings import gate_findings, safety_rows, small_batch_rows, stream_curves, stream_rows
from regtta_bench.stress.results import parse_results
from regtta_bench.stress.stress_tables import make_stress_tables, make_summary_table, table_files


def of(*lines):
    return parse_results(lines, "demo")


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def texts(sheet):
    return {line.name: [text.text for text in line.cells] for line in sheet.rows}


def sheet(results, title):
    (found,) = [one for one in make_stress_tables(results) if one.title.startswith(title)]
    return found


# --- streams -------------------------------------------------------------------------------------


def stream_lines():
    return [
        source_line(0.4, part="blurred"),
        source_line(0.6, part="noisy"),
        line(0.5, 0.4, part="blurred"),
        line(0.9, 0.6, part="noisy"),
        line(0.7, 0.4, part="blurred", guards="safe"),
        line(None, 0.6, part="noisy", guards="safe", diverged="predictions"),
        line(0.2, 0.4, part="blurred", batch_size=8),
    ]


def test_means_cover_source_models_and_parts_but_no_diverged_run():
    (row,) = stream_rows(of(*stream_lines()))
    assert row.source.value == pytest.approx(0.5)
    assert row.means[64, "plain"].value == pytest.approx(0.7)
    assert (row.means[64, "safe"].diverged_runs, row.means[64, "safe"].runs) == (1, 2)
    assert texts(sheet(of(*stream_lines()), "Online R²")) == {
        "iid": ["0.500", "0.200", "not run", "0.700", "diverged 1 of 2"]
    }
    rows = read(table_files(stream_lines(), "demo")["demo-streams.csv"])
    assert [(r["batch_size"], r["guards"], r["r2"], r["source_r2"], r["diverged"]) for r in rows] == [
        ("8", "plain", "0.2", "0.5", "0"),
        ("8", "safe", "", "0.5", "0"),
        ("64", "plain", "0.7", "0.5", "0"),
        ("64", "safe", "", "0.5", "1"),
    ]


# --- safety --------------------------------------------------------------------------------------


def safety_lines():
    return [
        line(0.481, guards="safe", kind="sorted"),
        line(0.60, guards="safe", kind="sorted", seed=1),
        line(0.10, kind="sorted", batch_size=8),
        line(0.30, kind="sorted", seed=1),
        line(0.479, guards="safe", kind="back", part="noisy", batch_size=8, seed=2),
        line(0.90, guards="safe", kind="back"),
        line(None, guards="safe", kind="mixed", part="", diverged="weights"),
        line(0.5, guards="safe", kind="unshifted", part="", method_name="rsd"),
    ]


def test_the_worst_run_decides():
    rows = {(row.method_name, row.kind): row for row in safety_rows(of(*safety_lines()))}
    assert rows["ssa", "sorted"].safe.gain == pytest.approx(-0.019)
    assert rows["ssa", "sorted"].plain.gain == pytest.approx(-0.4)
    assert {place: row.is_met for place, row in rows.items()} == {
        ("ssa", "sorted"): True,
        ("ssa", "back"): False,
        ("ssa", "mixed"): False,
        ("rsd", "unshifted"): True,
    }


def test_the_safety_table_names_the_worst_runs():
    results = of(*safety_lines())
    assert texts(sheet(results, "Worst difference to Source in R²"))["ssa, back"] == [
        *("−0.021", "not met", "noisy, batches of 8, model 2", "not run", "")
    ]
    assert texts(sheet(results, "Worst difference to Source in R²"))["ssa, sorted"] == [
        *("−0.019", "met", "blurred, batches of 64, model 0", "−0.400", "blurred, batches of 8, model 0")
    ]
    short = make_summary_table(results)
    assert short.columns == ("sorted", "back", "mixed", "unshifted")
    assert texts(short) == {"rsd": ["", "", "", "0.000"], "ssa": ["−0.019", "−0.021", "diverged", ""]}
    assert [text.bold for text in short.rows[1].cells] == [False, True, True, False]
    assert short.notes[0] == "Asked: at least −0.020; not met in 2 of 4. Bold: not met."


def test_safety_as_csv():
    rows = read(table_files(safety_lines(), "demo")["demo-safety.csv"])
    by_place = {(row["method"], row["kind"], row["guards"]): row for row in rows}
    assert by_place["ssa", "back", "safe"] == {
        **{"method": "ssa", "kind": "back", "guards": "safe", "worst": "-0.021", "part": "noisy"},
        **{"batch_size": "8", "source_model": "2", "met": "False"},
    }
    assert by_place["ssa", "mixed", "safe"]["worst"] == "diverged"
    assert by_place["ssa", "sorted", "plain"]["met"] == ""


# --- small batches -------------------------------------------------------------------------------


def small_lines():
    return [
        source_line(0.5),
        line(0.9),
        line(0.6, batch_size=8),
        line(0.82, method_name="ssa_window", batch_size=8),
        line(0.5, batch_size=1),
        line(0.7, method_name="ssa_window", batch_size=1),
    ]


def test_the_share_of_the_gain_that_small_batches_keep():
    rows = {(row.method_name, row.batch_size): row for row in small_batch_rows(of(*small_lines()))}
    assert {place: round(row.kept_share, 6) for place, row in rows.items()} == {
        ("ssa", 1): 0,
        ("ssa", 8): 0.25,
        ("ssa", 64): 1,
        ("ssa_window", 1): 0.5,
        ("ssa_window", 8): 0.8,
    }
    assert {place: row.is_met for place, row in rows.items() if row.is_met is not None} == {
        ("ssa", 8): False,
        ("ssa_window", 8): True,
    }
    words = texts(sheet(of(*small_lines()), "Small batches"))
    assert words["ssa_window, batches of 8"] == ["0.820", "+0.320", "80%", "met"]
    assert words["ssa, batches of 1"] == ["0.500", "0.000", "0%", ""]


def test_no_share_is_reported_without_a_gain_at_64():
    (row,) = small_batch_rows(of(line(0.6, batch_size=8)))
    assert np.isnan(row.kept_share)
    assert row.is_met is None
    results = of(line(0.6, batch_size=8), line(0.4))
    eight, whole = small_batch_rows(results)
    assert (np.isnan(eight.kept_share), eight.is_met) == (True, True)  # better than none: nothing is lost
    assert whole.gain == pytest.approx(-0.1)
    assert [row.is_met for row in small_batch_rows(of(line(0.3, batch_size=8), line(0.4)))] == [False, None]
    assert sheet(results, "Small batches").notes[0].endswith("ssa at 64 gains nothing here.")
    assert not sheet(of(*small_lines()), "Small batches").notes[0].endswith("here.")


# --- the gate ------------------------------------------------------------------------------------


def gate_lines():
    clean = {"kind": "redrawn", "part": "", "guards": "gate", "batches": 10_000, "length": 640_000}
    return [
        line(0.499, learned=30, **clean),
        line(0.496, learned=120, seed=1, **clean),
        line(0.8, guards="gate", first_learned=1),
        line(0.8, guards="gate", first_learned=3, seed=1),
        line(0.8, guards="gate", part="noisy", first_learned=None),
    ]


def test_the_gate_is_judged_by_its_worst_source_model():
    gate = gate_findings(of(*gate_lines()))
    assert (gate.batches, gate.source_models) == (10_000, 2)
    assert gate.still_share == pytest.approx(0.988)
    assert gate.worst_gain == pytest.approx(-0.004)
    assert gate.opening_batches == {"blurred": 3, "noisy": np.inf}
    assert texts(sheet(of(*gate_lines()), "The gate")) == {
        "clean, 10,000 batches: without an update": ["at least 99%", "98.80%", "not met"],
        "clean, 10,000 batches: R² less Source's": ["at least −0.005", "−0.004", "met"],
        "blurred: batches until the first step": ["at most 5", "3", "met"],
        "noisy: batches until the first step": ["at most 5", "never", "not met"],
    }
    assert [row["verdict"] for row in read(table_files(gate_lines(), "demo")["demo-gate.csv"])] == [
        *("not met", "met", "met", "not met")
    ]


def test_only_the_longest_clean_stream_of_the_gate_counts():
    short = line(0.1, learned=5, kind="redrawn", part="", guards="gate", batches=10, length=640)
    assert gate_findings(of(*gate_lines(), short)) == gate_findings(of(*gate_lines()))


def test_no_gate_no_table():
    assert gate_findings(of(line(0.5))) is None
    assert table_files([line(0.5)], "demo")["demo-gate.csv"] == "what,asked,found,verdict\n"


# --- files ---------------------------------------------------------------------------------------


def test_files_do_not_depend_on_the_order_of_the_lines():
    lines = [*stream_lines(), *safety_lines(), *gate_lines()]
    lines = list({record["key"]: record for record in lines}.values())
    files = table_files(lines, "demo")
    shuffled = lines.copy()
    random.Random(0).shuffle(shuffled)
    assert shuffled != lines
    assert table_files(shuffled, "demo") == files
    assert sorted(files) == [
        *("demo-gate.csv", "demo-safety.csv", "demo-small-batches.csv", "demo-streams.csv", "demo.md")
    ]


def test_lines_of_other_settings_and_of_other_guards_are_left_out():
    stale = line(0.1, kind="sorted")
    stale["specification"]["guards_mark"] = "of another time"
    stale["key"] = "0" * 16
    lines = [line(0.5), stale, line(0.2, setting="california", part="near_bay")]
    results = of(*lines)
    assert (len(results.runs), results.dropped) == (1, 1)
    text = table_files(lines, "demo")["demo.md"]
    assert "Made from 1 runs on cpu (regtta 0.1)" in text
    assert "1 lines of other trainings, methods or guards were left out." in text
    assert "- `iid`: shifted, in any order" in text
    assert "sorted" not in text


# --- the curves ----------------------------------------------------------------------------------


def test_curves_are_means_of_slices_at_batches_of_64():
    rising = [value / 20 for value in range(20)]
    results = of(
        source_line(0.5, slices=[0.5] * 20),
        line(0.5, slices=rising),
        line(0.5, slices=[1.0] * 20, part="noisy"),
        line(0.5, slices=[9.0] * 20, batch_size=8),
        line(0.5, slices=[0.25] * 19 + [None], guards="safe"),
        line(0.5, kind="sorted"),
    )
    (curve,) = stream_curves(results)
    assert curve.kind == "iid"
    np.testing.assert_allclose(curve.lines["ssa, plain"], (np.array(rising) + 1) / 2)
    np.testing.assert_allclose(curve.lines["Source"], 0.5)
    assert np.isnan(curve.lines["ssa, safe"][-1])
