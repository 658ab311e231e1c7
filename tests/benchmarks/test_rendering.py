import json
import re

from benchmarks.speed.figures import draw, figures_of
from benchmarks.speed.findings import Findings
from benchmarks.speed.record import Record
from benchmarks.speed.rendering import page
from helpers.speed_findings import EVERYTHING

ABOUT = {"device": "NVIDIA H200", "quick": False, "regtta": "0.1.0", "torch": "2.11", "python": "3.12", "cuda": "13.0"}


def record(**cases):
    return Record(ABOUT, cases)


def rows(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_table_shows_speed_ups_and_omits_empty_columns():
    text = page(record(case=EVERYTHING))
    found = rows(text)
    assert found[0] == ["", "times as fast as base", "milliseconds", "samples a second", "peak GPU memory, MiB", "note"]
    assert found[2] == ["base", "", "1.50 [1.25, 2.00]", "640", "12.5", ""]
    assert found[3] == ["other", "2.00 [1.25, 2.50]", "", "", "", "a note"]
    assert found[4] == ["broken", "", "", "", "", "failed: RuntimeError: no"]


def test_times_the_time_is_not_inverted():
    from dataclasses import replace

    (table,) = EVERYTHING.tables
    slower = Findings("slower", tables=(replace(table, reading="times the time"),))
    found = rows(page(record(case=slower)))
    assert found[0][1] == "times the time of base"
    assert found[3][1] == "0.500 [0.400, 0.800]"


def test_curves_scores_shares_and_facts_are_rendered():
    text = page(record(case=EVERYTHING))
    assert ["k", "growth, base", "growth, other", "other over base"] in rows(text)
    assert ["1", "1.50 [1.25, 2.00]", "1.50 [1.25, 2.00]", "1.50 [1.25, 2.00]"] in rows(text)
    assert ["convolution", "75.0 %"] in rows(text)
    assert ["device at work", "90.0 %"] in rows(text)
    assert ["bytes", "3.50 GB"] in rows(text)
    assert ["bfloat16", "not finite", "", "", ""] in rows(text)


def test_speed_is_shown_with_the_score_of_the_same_precision():
    text = page(record(case=EVERYTHING))
    assert ["float32", "0.6000", "+0.0000 [+0.0000, +0.0000]", "0.00 σ", "2.00 [1.25, 2.50]"] in rows(text)
    elsewhere = page(record(another=EVERYTHING))
    assert ["float32", "0.6000", "+0.0000 [+0.0000, +0.0000]", "0.00 σ"] in rows(elsewhere)


def test_page_names_device_and_versions():
    text = page(record(case=EVERYTHING))
    assert text.startswith("# Speed on NVIDIA H200\n")
    assert "regtta 0.1.0, torch 2.11, Python 3.12, CUDA 13.0." in text
    assert "smoke run" not in text
    assert "smoke run" in page(Record({**ABOUT, "quick": True}, {}))


def test_page_depends_only_on_the_json():
    plain = json.loads(json.dumps(record(case=EVERYTHING).plain()))
    again = Record(plain["made_with"], {name: Findings.from_plain(case) for name, case in plain["cases"].items()})
    assert page(again) == page(record(case=EVERYTHING))


def test_figures_on_the_page_are_drawn(tmp_path):
    whole = record(**{"step/all": EVERYTHING})
    draw(whole, tmp_path)
    shown = re.findall(r"!\[.*?\]\((.*?)\)", page(whole))
    assert sorted(shown) == sorted(path.name for path in tmp_path.iterdir()) == sorted(figures_of(whole))
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in shown)
    assert len(shown) == 3


def test_empty_findings_have_no_figures():
    assert figures_of(record(case=Findings("nothing"))) == {}
