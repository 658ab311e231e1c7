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
from regtta.errors import ExistingFileError, ForeignFileError, OptionError
from regtta_bench.cli.bench_options import StressOptions
from regtta_bench.cli.stress import plan_of, stress
from regtta_bench.data.loading import Place
from regtta_bench.demo.demo_model import Training
from regtta_bench.stress.streams import KINDS
from regtta_bench.stress.stress_runner import StressTools
from regtta_bench.stress.stress_settings import SETTINGS, DigitsSetting, DigitsSource, PaperSetting
from regtta_bench.stress.stress_tables import table_files
from regtta_bench.sweep.runner import Tools
from regtta_bench.sweep.store import RunStore, key_of

SMALL = ["stress", "demo", "--kinds", "iid,sorted", "--parts", "noisy", "--methods", "ssa,bn_adapt", "--device", "cpu"]
SMALL += ["--batch-sizes", "32,64", "--source-models", "1", "--gate-batches", "3"]
FILES = ["demo-gate.csv", "demo-safety.csv", "demo-small-batches.csv", "demo-streams.csv", "demo.md"]
RUNS = 2 * (1 + 2 * 2 * 2) + 2  # streams times Source and methods, batch sizes and guards; the gate


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    """Source models of one epoch on few digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DigitsSetting, "source", lambda _, seed: DigitsSource(seed, 200, 130, Training(epochs=1)))
        yield


class Silent:
    def __init__(self, stop_after=0):
        self.counts, self.made, self.stop_after = None, 0, stop_after

    def begun(self, runs, found):
        self.counts = (runs, found)

    def training(self, name, done, total):
        pass

    def ran(self, spec, result):
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
        f"demo-digits-0-{SETTINGS['demo'].source(0).key}.safetensors"
    ]


def test_it_prints_what_is_asked_and_where_the_rest_lies(made):
    result, out = made
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "Worst difference to Source, guards SAFE, demo" in lines
    assert lines[lines.index("Worst difference to Source, guards SAFE, demo") + 1] == "iid sorted"
    assert any(line.startswith("clean, 3 batches: without an update at least 99%") for line in lines)
    assert f"written {out / 'demo.md'}" in lines
    assert f"{RUNS} runs to make, 0 found." in result.stderr


def test_the_tables_are_those_of_the_lines(made, tmp_path):
    _, out = made
    files = table_files(RunStore(out / "runs.jsonl"), "demo")
    assert sorted(files) == FILES
    for name, text in files.items():
        assert (out / name).read_text(encoding="utf-8") == text
    text = files["demo.md"]
    assert "Made from 20 runs on cpu" in text
    assert "### Online R² by kind of stream, bn_adapt" in text


def test_tables_alone_run_nothing_and_are_the_same(made):
    _, out = made
    before = {name: (out / name).read_bytes() for name in [*FILES, "runs.jsonl"]}
    result = CliRunner().invoke(app, ["stress", "demo", "--tables-only", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert {name: (out / name).read_bytes() for name in before} == before


def test_a_stopped_run_goes_on_where_it_was_and_ends_as_one_never_stopped(tmp_path, made):
    whole = lines_of(made[1])
    with pytest.raises(KeyboardInterrupt):
        stress(options(tmp_path), Silent(stop_after=2))
    assert len(lines_of(tmp_path)) == 2
    listener = Silent()
    stress(options(tmp_path), listener)
    assert listener.counts == (1, 2)
    assert lines_of(tmp_path).items() <= whole.items()
    again = Silent()
    stress(options(tmp_path), again)
    assert (again.counts, again.made) == ((0, 3), 0)


def test_the_tools_and_the_runs_can_be_sent_to_another_process(tmp_path, made):
    runs = plan_of(options(tmp_path), SETTINGS["demo"]).runs()
    sent = pickle.loads(pickle.dumps((StressTools(Tools(Place(tmp_path), made[1] / "models")), runs)))
    assert sent[1] == runs
    worker = sent[0].worker(lambda *_: pytest.fail("the model is there"))
    worker.ready(sent[1])
    found = {key_of(spec.plain()): worker.run(spec) for spec in sent[1]}
    assert found.items() <= lines_of(made[1]).items()


def test_control_c_says_that_nothing_is_lost(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("regtta_bench.sweep.run_sweep.sweep", stopped)
    result = CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path / "new")])
    assert result.exit_code == 130
    assert "All runs so far are kept" in result.stderr


# --- settings of the paper -----------------------------------------------------------------------


def test_california_needs_its_data_and_leaves_out_what_needs_images(tmp_path, monkeypatch):
    write_california(tmp_path, rows=90)
    usual = SETTINGS["california"].source(0)
    tiny = replace(usual, recipe=replace(usual.recipe, epochs=1, batch_size=8))
    monkeypatch.setattr(PaperSetting, "source", lambda _, seed: replace(tiny, seed=seed))
    chosen = StressOptions(
        name="california", out=tmp_path / "out", kinds=("back",), batch_sizes=(8,),
        methods=("ssa", "variance_minimization"),
        source_models=1, gate=False, device="cpu", data=tmp_path,
    )  # fmt: skip
    report = stress(chosen, Silent())
    assert report.notes == ("variance_minimization cannot run on california: it needs images.",)
    runs = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert [(run["specification"]["arm"], run["specification"]["part"]) for run in runs] == [
        *(("source", "near_bay"), ("ssa", "near_bay"), ("ssa", "near_bay"))
    ]
    assert runs[1]["specification"]["method"]["k"] == 10


def test_without_data_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.delenv("REGTTA_DATA", raising=False)
    result = CliRunner().invoke(app, ["stress", "california", "--out", str(tmp_path / "new")])
    assert (result.exit_code, (tmp_path / "new").exists()) == (2, False)
    assert "Pass --data DIR" in result.stderr


# --- options -------------------------------------------------------------------------------------


def plan(**changes):
    return plan_of(StressOptions(name="demo", out=Path("out"), **changes), SETTINGS["demo"])


def test_by_default_everything_is_run():
    whole = plan()
    assert (whole.source_models, whole.batch_sizes, whole.gate_batches) == (3, (1, 8, 64), 10_000)
    assert (whole.kinds, whole.parts) == (tuple(KINDS), SETTINGS["demo"].parts)


def test_a_quick_run_is_small_but_for_what_is_asked():
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
def test_a_mistake_is_one_line_before_anything_is_run(tmp_path, arguments, said):
    result = CliRunner().invoke(app, ["stress", *arguments, "--out", str(tmp_path / "new")])
    assert (result.exit_code, (tmp_path / "new").exists()) == (2, False)
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_numbers_come_once_and_in_their_order():
    assert split_integers("64, 8,64,") == (64, 8)
    assert split_integers("") == ()


def test_another_ones_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ExistingFileError, match="holds other files"):
        stress(options(tmp_path), Silent())
    (tmp_path / "runs.jsonl").write_text('{"key": "0", "specification": {"source": {}}, "result": {}}\n')
    with pytest.raises(ForeignFileError, match="holds runs of another command"):
        stress(options(tmp_path), Silent())


def test_a_folder_without_runs_of_the_setting_has_no_tables(made):
    with pytest.raises(OptionError, match="holds no runs of california"):
        stress(StressOptions(name="california", out=made[1], tables_only=True), Silent())
