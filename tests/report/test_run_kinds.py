"""Detection of the kind of run at a path, and construction of its page."""

import json
import shutil
from pathlib import Path

import pytest

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta.errors import FileError, InvalidFileError, MissingFileError, OptionError
from regtta.persistence.safe_read import MAX_JSON_BYTES
from regtta.report import render_html
from regtta.report.recorder import ADAPTATION, RunRecorder, write_record
from regtta.report.run_kinds import build_page, detect_run_kind, read_record
from regtta_bench.tables.reproduction_page import find_tables

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def content():
    """Return the smallest record: no statistics, no labels."""
    model = small_models.mlp()
    adapter = regtta.Adapter(model, regtta.BNAdapt())
    recorder = attach(RunRecorder(model), adapter)
    batch = small_models.table(30)
    adapter.adapt(batch)
    about = {"command": "regtta adapt --record run.json", "model": "m:make", "data": "d.csv", "protocol": "online"}
    about |= {"samples": 30, "not_finite": 0, "learned": 1, "refused": {}, "unscored": 0, "scores": None}
    return recorder.record(about, online=about["protocol"] == "online")


@pytest.fixture
def record(tmp_path, content):
    write_record(tmp_path / "run.json", content)
    return tmp_path / "run.json"


@pytest.fixture
def demo(tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("results.json", "detail.json"):
        (folder / name).write_text("{}")
    return folder


def test_the_format_is_that_of_the_recorder(content):
    assert content["format"] == ADAPTATION


def test_kinds_are_detected_from_the_path(record, demo):
    assert detect_run_kind(record).name == "adapt --record"
    assert detect_run_kind(demo).name == "demo"
    assert detect_run_kind(RESULTS / "california").name == "reproduce"
    assert detect_run_kind(RESULTS / "california" / "california.csv").name == "reproduce"


def test_a_missing_path_is_reported(tmp_path):
    with pytest.raises(MissingFileError, match=r"There is no file or folder .*gone\.json"):
        build_page([tmp_path / "gone.json"], "x")


@pytest.mark.parametrize("name", ["run.txt", "run", "weights.safetensors"])
def test_other_files_are_not_runs(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidFileError, match=f"{name} is not a recorded run"):
        detect_run_kind(tmp_path / name)


@pytest.mark.parametrize("missing", ["results.json", "detail.json"])
def test_a_folder_of_the_demo_needs_both_files(demo, missing):
    (demo / missing).unlink()
    with pytest.raises(InvalidFileError, match="is not a recorded run"):
        detect_run_kind(demo)


def test_an_empty_folder_is_not_a_run(tmp_path):
    with pytest.raises(InvalidFileError, match="is not a recorded run"):
        detect_run_kind(tmp_path)


def test_tables_of_a_folder_are_those_with_latex_beside_them(tmp_path):
    for name in ("b.csv", "b.tex", "a.csv", "a.tex", "mine.csv", "c.tex"):
        (tmp_path / name).write_text("")
    assert [path.name for path in find_tables(tmp_path)] == ["a.csv", "b.csv"]


def test_a_folder_is_the_page_of_its_tables(tmp_path):
    for ending in ("csv", "md", "tex"):
        shutil.copy(RESULTS / "california" / f"california.{ending}", tmp_path)
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    page = build_page([tmp_path], "regtta report there")
    assert page.title == "Reproduction: california"
    assert page.command == "regtta reproduce california\nregtta report there"


def test_folders_and_tables_can_be_combined():
    page = build_page([RESULTS / "california", RESULTS / "svhn-subset" / "svhn-subset.csv"], "x")
    assert page.title == "Reproduction: california, svhn-subset"


def test_records_become_one_page(record):
    assert build_page([record], "x").title == "Adaptation of m:make"
    assert build_page([record, record], "x").sections[0].title == "Side by side"


def test_kinds_cannot_be_mixed(record, demo):
    with pytest.raises(
        OptionError, match=r"one kind for one report, found .*run\.json \(adapt --record\), .*demo \(demo\)"
    ):
        build_page([record, demo], "x")


def test_a_report_requires_a_run():
    with pytest.raises(OptionError, match="found nothing"):
        build_page([], "x")


def test_two_demos_cannot_be_combined(demo, tmp_path):
    other = shutil.copytree(demo, tmp_path / "other")
    with pytest.raises(OptionError, match="one folder of regtta demo, found 2"):
        build_page([demo, other], "x")


# --- names that users choose ---------------------------------------------------------------------

HOSTILE = "<script>hit=1<script>&\"'"
ESCAPED = "&lt;script&gt;hit=1&lt;script&gt;&amp;&#34;&#39;"


def assert_escaped(text: str) -> None:
    assert ESCAPED in text
    assert HOSTILE not in text
    assert text.count("<script>") == 1  # the page's own


def test_hostile_names_in_a_record_are_escaped(tmp_path, content):
    method = content["environment"]["method"] | {"name": HOSTILE}
    hostile = {"model": HOSTILE, "data": HOSTILE, "environment": content["environment"] | {"method": method}}
    path = tmp_path / f"{HOSTILE}.json"
    write_record(path, content | hostile)
    assert_escaped(render_html(build_page([path], f"regtta report {path}")))
    assert_escaped(render_html(build_page([path, path], f"regtta report {path}")))


def test_a_hostile_file_name_of_a_table_is_escaped(tmp_path):
    path = tmp_path / f"{HOSTILE}.csv"
    shutil.copy(RESULTS / "california" / "california.csv", path)
    assert_escaped(render_html(build_page([path], f"regtta report {path}")))


# --- invalid records -----------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(record, content):
    assert read_record(record) == json.loads(json.dumps(content))


@pytest.mark.parametrize(
    "text",
    [
        "", "no json", "[1, 2]", "null", "3", "{}", '{"format": "regtta.adaptation/2"}', '{"format": ["regtta"]}',
        '{"format": ', "1" * 5000, "[" * 100_000, '{"a":' * 100_000,
    ],
    ids=["empty", "text", "list", "null", "number", "no format", "newer", "format a list", "cut off", "long number",
         "deep list", "deep object"],
)  # fmt: skip
def test_foreign_json_is_rejected_by_name(tmp_path, text):
    (tmp_path / "foreign.json").write_text(text)
    with pytest.raises(InvalidFileError, match="foreign.json"):
        build_page([tmp_path / "foreign.json"], "x")


def test_bytes_that_are_not_text_are_rejected(tmp_path):
    (tmp_path / "foreign.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidFileError, match="cannot be read as JSON"):
        read_record(tmp_path / "foreign.json")


def test_a_huge_file_is_rejected_unread(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)  # sparse: it takes no room
    with pytest.raises(InvalidFileError, match="has more than 268435456 bytes"):
        read_record(tmp_path / "huge.json")


@pytest.mark.parametrize("key", ["environment", "stream", "learned"])
def test_a_record_with_a_missing_part_is_rejected(tmp_path, content, key):
    cut = {name: value for name, value in content.items() if name != key}
    write_record(tmp_path / "cut.json", cut)
    with pytest.raises(FileError):
        build_page([tmp_path / "cut.json"], "x")


@pytest.mark.parametrize(("key", "value"), [("stream", {}), ("stream", 3), ("refused", None)])
def test_a_record_with_a_replaced_part_is_rejected(tmp_path, content, key, value):
    write_record(tmp_path / "odd.json", content | {key: value})
    with pytest.raises(FileError):
        build_page([tmp_path / "odd.json"], "x")
