"""``regtta stress`` on the demo's digits, with source models of one epoch."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.published_datasets import write_california
from regtta.cli.app import app
from regtta.cli.shared_options import split_integers
from regtta.errors import ExistingFileError, InvalidFileError, OptionError
from regtta_bench.cli.bench_options import StressOptions
from regtta_bench.cli.stress import make_stress_plan, run_stress
from regtta_bench.data.loading import DataLocation
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.stress.streams import STREAM_KINDS
from regtta_bench.stress.stress_runner import StressRunnerConfig
from regtta_bench.stress.stress_settings import STRESS_SETTINGS, DigitsSetting, DigitsSource, PaperSetting
from regtta_bench.stress.stress_tables import table_files
from regtta_bench.sweep.runner import RunnerConfig
from regtta_bench.sweep.store import RunStore, compute_key

SMALL = ["stress", "demo", "--kinds", "iid,sorted", "--parts", "noisy", "--methods", "ssa,bn_adapt", "--device", "cpu"]
SMALL += ["--batch-sizes", "32,64", "--source-models", "1", "--gate-batches", "3"]
FILES = ["demo-gate.csv", "demo-safety.csv", "demo-small-batches.csv", "demo-streams.csv", "demo.md"]
RUNS = 2 * (1 + 2 * 2 * 2) + 2  # streams times Source and methods, batch sizes and guards; the gate


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    """Train source models for one epoch on few digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DigitsSetting, "source", lambda _, seed: DigitsSource(seed, 200, 130, DigitTraining(epochs=1)))
        yield


class CountingListener:
    def __init__(self, stop_after=0):
        self.counts, self.made, self.stop_after = None, 0, stop_after

    def on_start(self, runs, found):
        self.counts = (runs, found)

    def on_training(self, name, done, total):
        pass

    def on_run(self, spec, result):
        self.made += 1
        if self.made == self.stop_after:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("results") / "new"
    result = CliRunner().invoke(app, [*SMALL, "--out", str(out)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result, out


def options(out, **changes):
    chosen = {"kinds": ("iid",), "parts": ("noisy",), "methods": ("bn_adapt",), "batch_sizes": (64,), "gate": False}
    return StressOptions(name="demo", out=out, source_models=1, device="cpu", **(chosen | changes))


def lines_of(out):
    return {line["key"]: line["result"] for line in map(json.loads, (out / "runs.jsonl").read_text().splitlines())}


def test_a_run_writes_runs_tables_models_and_the_figure(made):
    _, out = made
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*FILES, "demo.png", "demo.svg", "models", "runs.jsonl"]
    )
    assert len(lines_of(out)) == RUNS
    assert all(len(line) < 2000 for line in (out / "runs.jsonl").read_text().splitlines())
    assert [path.name for path in (out / "models").iterdir()] == [
        f"demo-digits-0-{STRESS_SETTINGS['demo'].source(0).key}.safetensors"
    ]


def test_the_command_prints_summaries_and_files(made):
    result, out = made
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "Worst difference to Source, guards SAFE, demo" in lines
    assert lines[lines.index("Worst difference to Source, guards SAFE, demo") + 1] == "iid sorted"
    assert any(line.startswith("clean, 3 batches: without an update at least 99%") for line in lines)
    assert f"written {out / 'demo.md'}" in lines
    assert f"{RUNS} runs to make, 0 found." in result.stderr


def test_the_tables_are_built_from_the_runs(made, tmp_path):
    _, out = made
    files = table_files(RunStore(out / "runs.jsonl"), "demo")
    assert sorted(files) == FILES
    for name, text in files.items():
        assert (out / name).read_text(encoding="utf-8") == text
    text = files["demo.md"]
    assert "Made from 20 runs on cpu" in text
    assert "### Online R² by kind of stream, bn_adapt" in text


def test_tables_only_runs_nothing_and_gives_the_same_tables(made):
    _, out = made
    before = {name: (out / name).read_bytes() for name in [*FILES, "runs.jsonl"]}
    result = CliRunner().invoke(app, ["stress", "demo", "--tables-only", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert {name: (out / name).read_bytes() for name in before} == before


def test_a_resumed_benchmark_equals_an_uninterrupted_one(tmp_path, made):
    whole = lines_of(made[1])
    with pytest.raises(KeyboardInterrupt):
        run_stress(options(tmp_path), CountingListener(stop_after=2))
    assert len(lines_of(tmp_path)) == 2
    listener = CountingListener()
    run_stress(options(tmp_path), listener)
    assert listener.counts == (1, 2)
    assert lines_of(tmp_path).items() <= whole.items()
    again = CountingListener()
    run_stress(options(tmp_path), again)
    assert (again.counts, again.made) == ((0, 3), 0)


def test_configuration_and_runs_can_be_pickled(tmp_path, made):
    runs = make_stress_plan(options(tmp_path), STRESS_SETTINGS["demo"]).runs()
    sent = pickle.loads(
        pickle.dumps((StressRunnerConfig(RunnerConfig(DataLocation(tmp_path), made[1] / "models")), runs))
    )
    assert sent[1] == runs
    worker = sent[0].make_worker(lambda *_: pytest.fail("the model is there"))
    worker.prepare(sent[1])
    found = {compute_key(spec.to_dict()): worker.run(spec) for spec in sent[1]}
    assert found.items() <= lines_of(made[1]).items()


def test_an_interrupt_states_that_runs_are_kept(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("regtta_bench.sweep.run_sweep.run_missing", stopped)
    result = CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path / "new")])
    assert result.exit_code == 130
    assert "All finished runs are kept" in result.stderr


# --- settings of the paper -----------------------------------------------------------------------


def test_california_skips_methods_that_need_images(tmp_path, monkeypatch):
    write_california(tmp_path, rows=90)
    usual = STRESS_SETTINGS["california"].source(0)
    tiny = replace(usual, recipe=replace(usual.recipe, epochs=1, batch_size=8))
    monkeypatch.setattr(PaperSetting, "source", lambda _, seed: replace(tiny, seed=seed))
    chosen = StressOptions(
        name="california", out=tmp_path / "out", kinds=("back",), batch_sizes=(8,),
        methods=("ssa", "variance_minimization"),
        source_models=1, gate=False, device="cpu", data=tmp_path,
    )  # fmt: skip
    report = run_stress(chosen, CountingListener())
    assert report.notes == ("variance_minimization cannot run on california: it needs images.",)
    runs = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert [(run["specification"]["arm"], run["specification"]["part"]) for run in runs] == [
        *(("source", "near_bay"), ("ssa", "near_bay"), ("ssa", "near_bay"))
    ]
    assert runs[1]["specification"]["method"]["k"] == 10


def test_missing_data_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.delenv("REGTTA_DATA", raising=False)
    result = CliRunner().invoke(app, ["stress", "california", "--out", str(tmp_path / "new")])
    assert (result.exit_code, (tmp_path / "new").exists()) == (2, False)
    assert "Pass --data DIR" in result.stderr


# --- options -------------------------------------------------------------------------------------


def plan(**changes):
    return make_stress_plan(StressOptions(name="demo", out=Path("out"), **changes), STRESS_SETTINGS["demo"])


def test_defaults_cover_everything():
    whole = plan()
    assert (whole.source_models, whole.batch_sizes, whole.gate_batches) == (3, (1, 8, 64), 10_000)
    assert (whole.kinds, whole.parts) == (tuple(STREAM_KINDS), STRESS_SETTINGS["demo"].parts)


def test_a_quick_run_is_small_except_for_given_options():
    quick = plan(quick=True)
    assert (quick.source_models, quick.batch_sizes, quick.gate_batches) == (1, (64,), 0)
    assert (quick.kinds, quick.parts) == (("iid", "sorted"), ("darkened",))
    asked = plan(quick=True, kinds=("back",), gate=True, gate_batches=7, source_models=2)
    assert (asked.kinds, asked.gate_batches, asked.source_models) == (("back",), 7, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["atari"], "Expected NAME to be one of"),
        (["demo", "--kinds", "iid,sotred"], "Did you mean 'sorted'"),
        (["demo", "--methods", "sssa"], "each of --methods"),
        (["demo", "--parts", "rotated"], "each of --parts"),
        (["demo", "--batch-sizes", "eight"], "Expected whole numbers such as 1,8,64, found 'eight'"),
        (["demo", "--batch-sizes", "0"], "each of --batch-sizes"),
        (["demo", "--tables-only"], "There are no runs in"),
        (["demo", "--ray", "somewhere"], "Expected --ray to be local, auto, HOST:PORT or ray://HOST:PORT"),
    ],
)
def test_errors_are_one_line_before_any_work(tmp_path, arguments, said):
    result = CliRunner().invoke(app, ["stress", *arguments, "--out", str(tmp_path / "new")])
    assert (result.exit_code, (tmp_path / "new").exists()) == (2, False)
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_numbers_are_unique_and_in_order():
    assert split_integers("64, 8,64,") == (64, 8)
    assert split_integers("") == ()


def test_folders_with_other_files_are_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ExistingFileError, match="holds other files"):
        run_stress(options(tmp_path), CountingListener())
    (tmp_path / "runs.jsonl").write_text('{"key": "0", "specification": {"source": {}}, "result": {}}\n')
    with pytest.raises(InvalidFileError, match="holds runs of another command"):
        run_stress(options(tmp_path), CountingListener())


def test_a_folder_without_runs_of_the_setting_is_refused(made):
    with pytest.raises(OptionError, match="holds no runs of california"):
        run_stress(StressOptions(name="california", out=made[1], tables_only=True), CountingListener())
