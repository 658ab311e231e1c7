"""The command end to end, on a tiny source model."""

from dataclasses import replace

import pytest
import torch

from regtta.errors import ExistingFileError, MissingFileError, OptionError
from regtta_bench.cli.label_shift import LabelShiftOptions, study_label_shift
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.demo.demo_recipe import DemoRecipe
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.label_shift.label_shift_testbeds import make_demo_testbed
from regtta_bench.label_shift.study import read_records

KEPT = ("darkened ×0.9", "contrast ×0.3")
TOY = DemoRecipe(source_digits=150, target_digits=100, training=DigitTraining(epochs=1))


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "label-shift"
    messages = []

    def make_bench(seed):
        testbed = make_demo_testbed(seed, TOY)
        return replace(testbed, shifts=tuple(s for s in testbed.shifts if s.name in KEPT))

    threads = torch.get_num_threads()
    with one_thread():
        report = study_label_shift(
            LabelShiftOptions("demo", out, source_seeds=2, quick=True),
            make_bench=make_bench,
            on_message=messages.append,
        )
    assert torch.get_num_threads() == threads
    return out, report, messages


def test_results_tables_and_figure_are_written(studied):
    out, report, messages = studied
    names = {"demo.jsonl", "demo.md", "demo-roc.csv", "demo-verdicts.csv", "demo-caution.csv", "demo.png", "demo.svg"}
    assert {path.name for path in out.iterdir()} == names == {path.name for path in report.written}
    lines = read_records(out / "demo.jsonl")
    cases = [line for line in lines if line["record"] == "case"]
    assert len(cases) == report.cases > 100
    assert {line["kind"] for line in cases} == {"none", "covariate", "label", "mixed"}
    assert sum("gain" in line for line in cases) > 0
    assert {line["seed"] for line in lines if line["record"] == "caution"} == {0}
    assert messages[-1] == "demo: 2 of 2 source models"
    assert "smoke run" in (out / "demo.md").read_text()
    assert {question for question, _, _ in report.best} >= {"labels moved at all", "labels, not inputs"}


def test_tables_only_reproduces_the_tables(studied, tmp_path):
    out, report, _ = studied
    (tmp_path / "demo.jsonl").write_bytes((out / "demo.jsonl").read_bytes())
    again = study_label_shift(LabelShiftOptions("demo", tmp_path, tables_only=True))
    assert again.best == report.best
    for name in ("demo.md", "demo-roc.csv", "demo-verdicts.csv", "demo-caution.csv"):
        assert (tmp_path / name).read_text() == (out / name).read_text()


def test_the_command_prints_cases_and_files(studied, regtta):
    out, report, _ = studied
    result = regtta("label-shift", "demo", "--out", str(out), "--tables-only")
    assert result.exit_code == 0, result.stderr
    assert f"{report.cases:,}" in result.stdout
    assert str(out / "demo.md") in result.stdout


def test_invalid_requests_raise_before_any_work(studied, tmp_path, regtta):
    out, _, _ = studied
    with pytest.raises(ExistingFileError, match="is not empty"):
        study_label_shift(LabelShiftOptions("demo", out))
    with pytest.raises(MissingFileError, match="Run without --tables-only first"):
        study_label_shift(LabelShiftOptions("demo", tmp_path, tables_only=True))
    with pytest.raises(OptionError, match="the data set"):
        study_label_shift(LabelShiftOptions("svhn", tmp_path))
    result = regtta("label-shift", "california", "--data", str(tmp_path), "--out", str(tmp_path / "new"))
    assert result.exit_code != 0
    assert not (tmp_path / "new").exists()
