import csv
import json
import shutil

import pytest
from typer.testing import CliRunner

from helpers.published_datasets import write_california, write_subset, write_tables
from helpers.sweeps import RecordingListener
from regtta.cli.app import app
from regtta.errors import MissingFileError, ModelMismatchError, OptionError
from regtta_bench.cli.bench_options import ReproduceOptions, parse_seed_range
from regtta_bench.cli.reproduce import command_line
from regtta_bench.cli.reproduce_shifts import run_shifts

FILES = [
    *("shifts.quick-summary.csv", "shifts.quick.csv", "shifts.quick.md"),
    *("shifts.quick.png", "shifts.quick.svg", "shifts.quick.tex"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_california(folder, rows=90)
    write_tables(folder, rows=60)
    write_subset(folder, counts=(40, 20), digits=[number % 10 for number in range(80)])
    return folder


def make_options(data, out, **changes):
    given = {"names": ("shifts",), "data": data, "out": out, "device": "cpu", "quick": True, "only": ("wine",)}
    return ReproduceOptions(**given | changes)


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """Return the result and the folder of a quick run of the wines on two source models."""
    out = tmp_path_factory.mktemp("results") / "out"
    words = ["reproduce", "shifts", "--quick", "--only", "wine", "--source-seeds", "2", "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "--data", str(data), "--out", str(out)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result, out


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_run_writes_its_tables_its_picture_its_runs_and_its_models(made):
    result, out = made
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, "models", "runs.jsonl"])
    assert "SMOKE RUN, not a result: Summary, development half" in result.stdout
    assert "Made by `regtta reproduce shifts --source-seeds 2 --only wine --quick`" in (out / FILES[2]).read_text()
    lines = read(out / "shifts.quick.csv")
    assert {line["column"] for line in lines} == {
        *("wine-white-to-red", "wine-white-drift", "wine-red-to-white", "wine-white-weak-drift"),
    }
    assert {line["missing"] for line in lines} == {"0"}
    assert {line["source_models"] for line in lines} == {"2"}


def test_the_csv_agrees_with_the_lines_of_the_runs(made):
    _, out = made
    runs = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    scores = [
        run["result"]["scores"]["online"]["r2"]
        for run in runs
        if run["specification"]["target"] == "drift" and run["specification"]["method"]["name"] == "bn_adapt"
    ]
    (line,) = (
        line
        for line in read(out / "shifts.quick.csv")
        if (line["column"], line["row"], line["protocol"]) == ("wine-white-drift", "bn_adapt", "online")
    )
    assert len(scores) == 2
    assert float(line["mean"]) == pytest.approx(sum(scores) / 2)


def test_guards_are_part_of_the_specification_only_where_they_are_not_the_default(made):
    _, out = made
    runs = [json.loads(line)["specification"] for line in (out / "runs.jsonl").read_text().splitlines()]
    assert {run.get("guards") for run in runs} == {None, "safe"}
    assert {run["method"]["name"] for run in runs if run.get("guards") == "safe"} >= {"ssa"}


def test_a_stopped_command_resumes(data, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_shifts(make_options(data, tmp_path / "out"), RecordingListener(stop_after=3))
    listener = RecordingListener()
    run_shifts(make_options(data, tmp_path / "out"), listener)
    assert listener.counts[1] == 3
    assert len(listener.completed) == listener.counts[0] > 3


def test_tables_only_needs_no_data(made, tmp_path, monkeypatch):
    _, out = made
    monkeypatch.delenv("REGTTA_DATA", raising=False)
    shutil.copy(out / "runs.jsonl", tmp_path)
    run_shifts(make_options(None, tmp_path, source_seeds=2, tables_only=True), RecordingListener())
    for name in ("shifts.quick.csv", "shifts.quick.tex", "shifts.quick-summary.csv", "shifts.quick.md"):
        assert (tmp_path / name).read_text() == (out / name).read_text()


def test_joined_seeds_give_the_tables_of_one_command(made, data, tmp_path):
    _, out = made
    for seed in (0, 1):
        options = make_options(
            data, tmp_path / f"seed{seed}", source_seed_range=range(seed, seed + 1), models=out / "models"
        )
        run_shifts(options, RecordingListener())
        assert {line["source_models"] for line in read(tmp_path / f"seed{seed}" / "shifts.quick.csv")} == {"1"}
    parts = tuple(tmp_path / f"seed{seed}" / "runs.jsonl" for seed in (0, 1))
    joined = make_options(None, tmp_path / "all", source_seeds=2, tables_only=True, join=parts)
    run_shifts(joined, RecordingListener())
    together = tmp_path / "together"
    together.mkdir()
    (together / "runs.jsonl").write_text("".join(part.read_text() for part in parts))
    run_shifts(make_options(None, together, source_seeds=2, tables_only=True), RecordingListener())
    for folder in (tmp_path / "all", together):
        for name in ("shifts.quick.csv", "shifts.quick-summary.csv"):
            assert (folder / name).read_text() == (out / name).read_text()
    again = len((tmp_path / "all" / "runs.jsonl").read_text().splitlines())
    run_shifts(joined, RecordingListener())
    assert len((tmp_path / "all" / "runs.jsonl").read_text().splitlines()) == again


def test_runs_of_different_trainings_are_not_joined(made, tmp_path):
    _, out = made
    lines = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    for line in lines:
        line["result"]["source_fingerprint"] = "of another training"
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = make_options(None, tmp_path / "out", source_seeds=2, tables_only=True, join=(out / "runs.jsonl", other))
    with pytest.raises(ModelMismatchError, match="on another training"):
        run_shifts(options, RecordingListener())
    assert not (tmp_path / "out" / "runs.jsonl").exists()
    with pytest.raises(MissingFileError, match="absent.jsonl"):
        run_shifts(make_options(None, tmp_path / "out", join=(tmp_path / "absent.jsonl",)), RecordingListener())


def test_images_run_and_missing_optional_data_is_skipped_with_a_note(data, tmp_path):
    options = make_options(data, tmp_path / "out", only=("images", "development", "corruption"))
    report = run_shifts(options, RecordingListener())
    assert report.notes[0].startswith("1 shifts of utkface are skipped. UTKFace is not in")
    names = {line["column"] for line in read(tmp_path / "out" / "shifts.quick.csv")}
    assert names == {"svhn-gaussian-noise", "mnist-gaussian-noise"}


def test_missing_data_that_is_asked_for_is_an_error(data, tmp_path):
    for only in (("utkface",), ("utkface-fog", "wine")):
        with pytest.raises(MissingFileError, match="UTKFace is not in"):
            run_shifts(make_options(data, tmp_path / "out", only=only), RecordingListener())
    assert not (tmp_path / "out").exists()


def test_a_further_method_is_a_further_row(data, tmp_path):
    options = make_options(data, tmp_path / "out", only=("wine-white-drift",), methods=("ssa:k=2,guards=safe",))
    run_shifts(options, RecordingListener())
    assert "ssa:k=2,guards=safe" in {line["row"] for line in read(tmp_path / "out" / "shifts.quick.csv")}
    with pytest.raises(OptionError, match="fits no shift"):
        run_shifts(
            make_options(data, tmp_path / "out", methods=("variance_minimization:views=3",)), RecordingListener()
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"names": ("shifts", "california")}, "Expected shifts alone"),
        ({"only": ("rain",)}, "found 'rain'"),
        ({"source_seeds": 2, "source_seed_range": range(1)}, "found both"),
        ({"source_seed_range": range(7, 8)}, "No source model has a seed"),
        ({"weights": ("mlp=x",)}, "the model of --weights"),
    ],
)
def test_mistakes_are_errors_before_any_run(data, tmp_path, changes, said):
    with pytest.raises(OptionError, match=said):
        run_shifts(make_options(data, tmp_path / "out", **changes), RecordingListener())


def test_tables_of_a_folder_without_runs_of_the_shifts_are_an_error(made, tmp_path):
    shutil.copy(made[1] / "runs.jsonl", tmp_path)
    with pytest.raises(OptionError, match="holds no run of these shifts"):
        run_shifts(make_options(None, tmp_path, only=("bike",), tables_only=True), RecordingListener())


def test_the_list_names_the_suite():
    result = CliRunner().invoke(app, ["reproduce", "--list"], env={"COLUMNS": "200"})
    assert any(line.startswith("shifts") and "bike" in line for line in result.stdout.splitlines())


def test_a_range_of_seeds_is_read_and_printed():
    assert (parse_seed_range("1:3"), parse_seed_range("")) == (range(1, 3), None)
    for text in ("1", "2:2", "3:1", "a:b", "-1:2", ":"):
        with pytest.raises(OptionError, match="Expected --source-seed-range A:B"):
            parse_seed_range(text)
    options = ReproduceOptions(names=("shifts",), source_seed_range=range(1, 3))
    assert command_line("shifts", options) == "regtta reproduce shifts --source-seed-range 1:3"
