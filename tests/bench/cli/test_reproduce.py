import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from helpers.published_datasets import write_california
from regtta.cli.app import app
from regtta.errors import FileError, MissingFileError, OptionError, RegttaError
from regtta.methods import SSA, Sum
from regtta_bench.cli.reproduce import (
    ReproduceOptions,
    command_line,
    list_experiments,
    parse_method,
    parse_weights,
    run_experiments,
)
from regtta_bench.paper import EXPERIMENT_NAMES
from regtta_bench.paper.experiments import EXPERIMENTS
from regtta_bench.paper.settings import SETTINGS

QUICK = ["reproduce", "california", "--quick", "--source-seeds", "2", "--seeds", "2", "--device", "cpu"]
TABLES = ["california.quick.csv", "california.quick.md", "california.quick.tex"]
MODULE = """
from dataclasses import dataclass

from regtta.methods import BNAdapt


@dataclass(frozen=True, kw_only=True)
class Mine(BNAdapt):
    name = "mine"


made = Mine(batch_norm="debiased")


def make():
    return made


def number():
    return 3


def needs(something):
    return made


text = "ssa"
"""


class RecordingListener:
    """Listener that records its calls."""

    def __init__(self):
        self.counts, self.method_names, self.trained = None, [], []

    def on_start(self, runs, found):
        self.counts = (runs, found)

    def on_training(self, name, done, total):
        self.trained.append((name, done, total))

    def on_run(self, spec, result):
        self.method_names.append(spec.method_config.method.name if spec.method_config else "")


class InterruptingListener(RecordingListener):
    """Listener that raises KeyboardInterrupt in the first training."""

    def on_training(self, name, done, total):
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_california(folder, rows=90)
    return folder


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """Return the result and the folder of a quick run of California."""
    out = tmp_path_factory.mktemp("results") / "new" / "folder"
    result = CliRunner().invoke(app, [*QUICK, "--data", str(data), "--out", str(out)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result, out


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """Change to a working directory with a module of user methods."""
    (tmp_path / "mymethods.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("REGTTA_DATA", raising=False)
    sys.modules.pop("mymethods", None)
    yield tmp_path
    sys.modules.pop("mymethods", None)


def empty(folder: Path) -> bool:
    return not folder.exists() or not any(folder.iterdir())


# --- a run ---------------------------------------------------------------------------------------


def test_a_run_writes_its_tables_its_runs_and_its_models(made):
    _, out = made
    assert sorted(path.name for path in out.iterdir()) == sorted([*TABLES, "models", "runs.jsonl"])
    assert len(list((out / "models").glob("california-mlp-regression-0-*.safetensors"))) == 2  # with its statistics
    assert not list((out / "models").glob("*partial*"))


def test_a_run_prints_every_table_and_where_it_was_written(made):
    result, out = made
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines.count("SMOKE RUN, not a result: California Housing, scores by method") == 1
    assert len([line for line in lines if "SMOKE RUN" in line]) == len(EXPERIMENTS["california"].table_specs({}))
    assert "Differences in R2 offline, california" in lines
    ssa = next(line.split() for line in lines if line.split()[:1] == ["ssa"])
    assert len(ssa) == 1 + 3 * 3  # a mean, ± and a deviation in each column
    paper = lines[next(number for number, line in enumerate(lines) if line.split()[:1] == ["ssa"]) + 1]
    assert " ".join(paper.split()) == "paper 0.639 ± 0.00 0.655 ± 0.00 0.469 ± 0.00"
    assert [line.split() for line in lines if line.startswith("written")] == [
        ["written", str(out / f"california.quick.{ending}")] for ending in ("md", "csv", "tex")
    ]


def test_progress_goes_to_stderr(made):
    result, out = made
    count = len((out / "runs.jsonl").read_text().splitlines())
    told = result.stderr.splitlines()
    assert told[0] == f"{count} runs to make, 0 found."
    assert told[-1] == f"{count} of {count} runs"
    assert any(re.fullmatch(r"training california-mlp-regression-1: 1 of 1 epochs", line) for line in told)
    assert "runs to make" not in result.stdout


def test_the_csv_agrees_with_the_lines_of_the_runs(made):
    _, out = made
    runs = pd.DataFrame(
        {
            "source": run["specification"]["source"]["seed"],
            "seed": run["specification"]["seed"],
            "r2": run["result"]["scores"]["offline"]["r2"],
        }
        for run in map(json.loads, (out / "runs.jsonl").read_text().splitlines())
        if run["specification"].get("method", {}).get("name") == "bn_adapt"
    )
    assert len(runs) == 2 * 2
    frame = pd.read_csv(out / "california.quick.csv")
    row = frame[(frame["table"] == "california") & (frame["row"] == "bn_adapt") & (frame["score"] == "R2")].iloc[0]
    by_source = runs.groupby("source")["r2"].mean()
    assert row["mean"] == pytest.approx(by_source.mean())
    assert row["sd"] == pytest.approx(by_source.std())
    assert (row["paper_mean"], row["source_models"], row["seeds"], row["runs"]) == (0.318, 2, 2, 4)


def test_the_markdown_states_the_command(made):
    _, out = made
    text = (out / "california.quick.md").read_text()
    typed = "regtta reproduce california --source-seeds 2 --seeds 2 --quick"
    assert text.startswith("# california (smoke run, not a result)\n")
    assert f"Made by `{typed}`" in text
    assert f"`{typed} --tables-only`" in text
    count = len((out / "runs.jsonl").read_text().splitlines())
    assert f"from {count} runs on cpu (regtta " in text


def test_tables_only_needs_no_data(made, regtta, here):
    _, out = made
    before = {name: (out / name).read_bytes() for name in TABLES}
    (out / TABLES[0]).unlink()
    result = regtta(*QUICK, "--out", str(out), "--tables-only")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert {name: (out / name).read_bytes() for name in TABLES} == before


def test_a_stopped_command_resumes(data, tmp_path):
    options = ReproduceOptions(
        names=("california",),
        data=data,
        out=tmp_path / "out",
        source_seeds=1,
        seeds=1,
        device="cpu",
        quick=True,
    )

    class AfterThree(RecordingListener):
        def on_run(self, spec, result):
            super().on_run(spec, result)
            if len(self.method_names) == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiments(options, AfterThree())
    silent = RecordingListener()
    run_experiments(options, silent)
    assert silent.counts[1] == 3
    assert len(silent.method_names) == silent.counts[0] > 3
    assert silent.trained == []


def test_a_command_stopped_in_its_first_training_resumes(data, tmp_path):
    options = ReproduceOptions(
        names=("california",),
        data=data,
        out=tmp_path / "out",
        source_seeds=1,
        seeds=1,
        device="cpu",
        quick=True,
    )
    with pytest.raises(KeyboardInterrupt):
        run_experiments(options, InterruptingListener())
    run_experiments(options, silent := RecordingListener())
    assert silent.counts[1] == 0


def test_several_experiments_share_their_runs_and_each_writes_its_tables(data, tmp_path):
    options = ReproduceOptions(
        names=("ablation", "k", "ablation"),
        out=tmp_path,
        data=data,
        models=tmp_path / "elsewhere",
        source_seeds=1,
        seeds=1,
        device="cpu",
        only=("california",),
        quick=True,
    )
    reports = run_experiments(options, RecordingListener())
    assert [report.name for report in reports] == ["ablation", "k"]
    for report in reports:
        assert [path.name for path in report.written] == [f"{report.name}.quick.{end}" for end in ("md", "csv", "tex")]
        assert report.notes == ()
    assert not (tmp_path / "models").exists()
    assert any((tmp_path / "elsewhere").iterdir())
    assert reports[0].tables[0].columns == ("california",)


def test_a_user_method_is_run_and_has_a_row(data, here):
    options = ReproduceOptions(
        names=("california",),
        data=data,
        out=here / "out",
        source_seeds=1,
        seeds=1,
        device="cpu",
        methods=("mymethods:Mine", "mymethods:made"),
        quick=True,
    )
    silent = RecordingListener()
    (report,) = run_experiments(options, silent)
    assert silent.method_names.count("mine") == 2
    rows = {line.name: line.cells[0].text for line in report.tables[0].rows}
    assert np.isfinite([float(rows[name]) for name in options.methods]).all()


def test_missing_weights_are_noted(tmp_path):
    (tmp_path / "runs.jsonl").touch()
    options = ReproduceOptions(names=("utkface", "svhn", "vit"), out=tmp_path, seeds=1, tables_only=True)
    faces, digits, vit = run_experiments(options, RecordingListener())
    assert [note.partition(" ")[0] for note in faces.notes] == ["resnet50"]
    assert digits.notes == ()
    assert "--weights vit_b16=FILE" in vit.notes[0]
    path = tmp_path / "weights.pth"
    path.write_bytes(b"weights")
    given = ReproduceOptions(names=("utkface",), out=tmp_path, seeds=1, tables_only=True, weights=(f"resnet50={path}",))
    assert run_experiments(given, RecordingListener())[0].notes == ()


def test_tables_without_a_single_run_say_so(tmp_path):
    (tmp_path / "runs.jsonl").touch()
    (report,) = run_experiments(ReproduceOptions(names=("svhn",), out=tmp_path, tables_only=True), RecordingListener())
    texts = {text.text for line in report.tables[0].rows if not line.from_paper for text in line.cells}
    assert texts == {"not run"}
    assert "from 0 runs on no device (nothing run)" in (tmp_path / "svhn.md").read_text()


# --- errors before any work ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Name at least one experiment; regtta reproduce --list"),
        (["claifornia"], "Did you mean 'california'"),
        (["california", "--only", "svnh"], "Expected --only to be one of .*Did you mean 'svhn'"),
        (["california", "--only", "svhn"], "california has nothing on svhn; it runs on california"),
        (["svhn", "--only", "svhn-subset"], "svhn has nothing on svhn-subset; it runs on svhn"),
        (["california", "--method", "sssa"], "Did you mean 'ssa'"),
        (["california", "--method", "ssa:kk=3"], "ssa has no option 'kk'"),
        (["california", "--method", "ssa:k=many"], "Cannot read k='many'"),
        (["california", "--method", "mymethods:Absent"], "'mymethods' has no 'Absent'"),
        (["california", "--method", "nowhere:Mine"], "no module 'nowhere'"),
        (["california", "--method", "mymethods:number"], "--method mymethods:number to be a method.* found int"),
        (["california", "--method", "mymethods:text"], "--method mymethods:text to be a method.* found str"),
        (["utkface", "--weights", "resnet50"], "Expected --weights MODEL=FILE, found 'resnet50'"),
        (["utkface", "--weights", "resnet50="], "Expected --weights MODEL=FILE"),
        (["utkface", "--weights", "resnet5=x.pth"], "Did you mean 'resnet50'"),
        (["svhn", "--weights", "resnet26=x.pth"], "the model of --weights to be one of"),
        (["utkface", "--weights", "resnet50=absent.pth"], "absent.pth cannot be read"),
        (["california", "--out", "mymethods.py"], "mymethods.py is a file. Name a folder with --out"),
        (["california", "--out", "."], "holds other files and no runs.jsonl"),
        (["california", "--tables-only"], "There are no runs in results.*Run without --tables-only first"),
        (["california"], "No folder of data sets was given"),
        (["california", "--data", "absent"], "There is no folder .*absent"),
        (["california", "--data", ".", "--ray", "somewhere"], "Expected --ray to be local, auto, HOST:PORT or ray://"),
        (["california", "--data", "."], "California Housing is not in .*Get it from Kaggle.*put it at .*--download"),
        (["utkface", "--data", "."], "UTKFace is not in .*Get it from https://susanqq.*non-commercial"),
        (["svhn", "--data", "."], "SVHN is not in .*ufldl.stanford.edu"),
        (["svhn-subset", "--data", "."], "The subset of SVHN is not in "),
        (["biwi", "--data", "."], "Biwi Kinect is not in .*Kaggle"),
        (["classification-cifar10c", "--data", "."], "CIFAR-10 is not in "),
    ],
)
def test_invalid_requests_are_refused_before_any_work(here, refusal, arguments, complaint):
    named = [] if "--out" in arguments else ["--out", "results"]
    assert re.search(complaint, refusal("reproduce", *arguments, *named))
    assert empty(here / "results")


def test_all_data_sets_are_checked_before_the_first_run(data, here, refusal):
    line = refusal("reproduce", "ablation", "--quick", "--data", str(data), "--out", "results")
    assert "SVHN is not in" in line
    assert empty(here / "results")


def test_biwi_needs_the_file_of_genders(here, refusal):
    (here / "biwi" / "faces_0").mkdir(parents=True)
    assert "biwi/genders.json" in refusal("reproduce", "biwi", "--data", ".", "--out", "results")
    assert "mine.json" in refusal("reproduce", "biwi", "--data", ".", "--out", "results", "--genders", "mine.json")


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--jobs", "0"], ["--source-seeds", "0"]])
def test_counts_must_be_positive(regtta, arguments):
    assert regtta("reproduce", "california", *arguments).exit_code == 2


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError):
        run_experiments(ReproduceOptions(names=("california",), out=tmp_path / "file" / "below"), RecordingListener())


def test_tables_only_needs_the_runs(tmp_path):
    with pytest.raises(MissingFileError, match="There are no runs"):
        run_experiments(ReproduceOptions(names=("california",), out=tmp_path, tables_only=True), RecordingListener())


# --- parsing of options --------------------------------------------------------------------------


def method_of(text, setting="svhn", task="regression"):
    return parse_method(text)(SETTINGS[setting], task).method


def test_named_methods_have_the_papers_options(here):
    paper = {"clip": False, "batch_norm": "batch", "bn_momentum": None, "lr": 1e-3}
    assert method_of("ssa") == SSA(k=100, **paper)
    assert method_of("ssa", "california") == SSA(k=10, **paper | {"batch_norm": "source"})
    assert method_of("ssa:k=25,metric=w2,clip=true") == SSA(k=25, metric="w2", **paper | {"clip": True})
    total = method_of("tent+0.5*ssa:k=3", task="classification")
    assert isinstance(total, Sum)
    assert (total.weights, total.terms[1].k) == ((1.0, 0.5), 3)
    assert method_of("2*ssa+tent", task="classification").weights == (2.0, 1.0)
    assert parse_method("ttt")(SETTINGS["svhn"], "regression").objective == "rotation"


def test_unsupported_methods_have_no_row(data, here):
    california, vit = SETTINGS["california"], SETTINGS["svhn-vit"]
    assert parse_method("tent")(california, "regression") is None
    assert parse_method("variance_minimization+ssa")(california, "regression") is None
    assert parse_method("bn_adapt")(vit, "regression") is None
    assert parse_method("prototype")(vit, "classification") is None
    options = ReproduceOptions(
        names=("california", "ablation"), data=data, out=here / "out", methods=("tent",), quick=True
    )
    with pytest.raises(OptionError, match="--method tent fits no table of california, ablation"):
        run_experiments(options, RecordingListener())
    assert not (here / "out").exists()


@pytest.mark.parametrize(("text", "mode"), [("mymethods:Mine", "batch"), ("mymethods:made", "debiased")])
def test_user_methods_are_imported(here, text, mode):
    found = method_of(text)
    assert (found.name, found.batch_norm) == ("mine", mode)
    assert method_of("mymethods:make").batch_norm == "debiased"


def test_a_failing_method_factory_raises(here):
    with pytest.raises(RegttaError, match="mymethods:needs"):
        method_of("mymethods:needs")


def test_weights_are_parsed_by_model():
    assert parse_weights(["resnet50=a.pth", "vit_b16=b=c.pth"]) == (
        ("resnet50", Path("a.pth")),
        ("vit_b16", Path("b=c.pth")),
    )
    assert parse_weights([]) == ()
    with pytest.raises(OptionError, match="MODEL=FILE"):
        parse_weights(["weights.pth"])


def test_the_command_line_reproduces_the_numbers():
    out = Path("somewhere")
    assert command_line("svhn", ReproduceOptions(names=("svhn", "online"), out=out)) == "regtta reproduce svhn"
    options = ReproduceOptions(
        names=("k",),
        out=out,
        source_seeds=2,
        seeds=1,
        jobs=4,
        only=("svhn", "california"),
        methods=("ssa:k=3", "mymethods:Mine"),
        quick=True,
    )
    assert command_line("k", options) == (
        "regtta reproduce k --source-seeds 2 --seeds 1 --only svhn --only california "
        "--method ssa:k=3 --method mymethods:Mine --quick"
    )


def test_the_command_line_names_the_weights():
    options = ReproduceOptions(names=("utkface",), out=Path("somewhere"), weights=("resnet50=imagenet.pth",))
    assert "--weights resnet50=" in command_line("utkface", options)


# --- the list ------------------------------------------------------------------------------------


def test_the_list_names_every_experiment(regtta, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = regtta("reproduce", "--list").stdout.splitlines()
    listed = {line.split()[0]: line for line in lines if line.strip()}
    assert {*EXPERIMENT_NAMES, "svhn-subset"} <= set(listed)
    assert "SSA by its divergence" in listed["metric"]
    assert "svhn, utkface, biwi" in listed["metric"]
    assert {name for name, *_ in list_experiments()} == set(EXPERIMENTS)


def test_names_in_the_list_are_never_wrapped(regtta, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = regtta("reproduce", "--list").stdout.split()
    assert {"classification-cifar10c", "sensitivity-batch"} <= set(shown)


def test_an_interrupt_states_how_to_resume(data, here, monkeypatch, regtta):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("regtta_bench.sweep.run_sweep.run_missing", stopped)
    result = regtta("reproduce", "california", "--quick", "--data", str(data), "--out", str(here / "out"))
    assert result.exit_code == 130
    assert "run the same command again to resume" in result.stderr
