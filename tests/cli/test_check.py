"""``regtta check`` on the user's folder."""

import json
from pathlib import Path

import pandas as pd
import pytest

from helpers.cli_workspace import MODEL

TARGET = ["--data", "target.csv", "--target", "y"]


def test_findings_are_printed_and_the_exit_status_is_zero(workspace: Path, statistics: Path, regtta):
    before = sorted(path.name for path in workspace.iterdir())
    result = regtta("check", *MODEL, *TARGET, "--stats", statistics.name)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert {line.split()[0] for line in lines[:-1]} == {"ok"}
    assert lines[-1] == "result       0 errors, 0 warnings, for ssa"
    assert any("The head is 3 (Linear): 8 features, 1 output." in line for line in lines)
    assert sorted(path.name for path in workspace.iterdir()) == before


def test_json_holds_the_whole_result(workspace: Path, statistics: Path, regtta):
    result = regtta("check", *MODEL, *TARGET, "--stats", statistics.name, "--set", "k=2", "--json")
    found = json.loads(result.stdout)
    assert found["ok"] is True
    assert (found["head"], found["features"], found["method"]) == ("3", 8, "ssa")
    assert found["moving"][:2] == ["1.weight", "1.bias"]
    assert found["cost"] > 0
    assert {"level", "topic", "message"} == set(found["findings"][0])


def test_an_error_gives_exit_status_one_and_command_line_terms(workspace: Path, statistics: Path, regtta):
    result = regtta("check", *MODEL, *TARGET, "--stats", statistics.name, "--batch-size", "1")
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("error")]
    assert line.split(maxsplit=3)[3] == (
        "ssa cannot learn from a batch of 1. Pass larger batches, or --set window=64 --set batch_norm=blended."
    )
    assert json.loads(regtta("check", *MODEL, *TARGET, "--batch-size", "1", "--json").stdout)["ok"] is False


@pytest.mark.parametrize("name", ["absent.safetensors", "weights.safetensors"])
def test_statistics_that_cannot_be_read_are_a_finding(workspace: Path, regtta, name):
    result = regtta("check", *MODEL, *TARGET, "--stats", name)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("error    statistics")
    assert "The head is 3" in result.stdout


def test_statistics_of_another_model_are_a_finding(workspace: Path, statistics: Path, regtta):
    result = regtta("check", "--model", "mymodel:make", *TARGET, "--stats", statistics.name)
    assert result.exit_code == 1
    assert "collected on another model" in result.stdout


def test_another_scale_of_a_column_is_a_warning_that_names_it(workspace: Path, statistics: Path, regtta):
    table = pd.read_csv("target.csv")
    table["b"] *= 1000
    table.to_csv("grams.csv", index=False)
    result = regtta("check", *MODEL, "--data", "grams.csv", "--target", "y", "--stats", statistics.name)
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("warning")]
    assert "preprocessing" in line
    assert "column 'b' has mean" in line


def test_columns_are_taken_in_the_order_of_the_statistics(workspace: Path, statistics: Path, regtta):
    pd.read_csv("target.csv")[["y", "c", "b", "a"]].to_csv("reordered.csv", index=False)
    result = regtta("check", *MODEL, "--data", "reordered.csv", "--target", "y", "--stats", statistics.name)
    assert result.stdout.splitlines()[-1] == "result       0 errors, 0 warnings, for ssa"


def test_loaders_other_methods_and_no_statistics(workspace: Path, regtta):
    result = regtta("check", *MODEL, "--data", "mymodel:batches", "--method", "bn_adapt")
    assert result.exit_code == 0
    assert "1.running_mean, 1.running_var are adapted" not in result.stdout
    assert "1.running_mean, 1.running_var" in result.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--data", "absent.csv"], "There is no file absent.csv"),
        (["--data", "target.csv", "--method", "nope"], "Expected the method to be one of"),
        (["--data", "target.csv", "--set", "k=x"], "Cannot read k='x'"),
        (["--data", "target.csv", "--target", "z"], "has no column 'z'"),
    ],
)
def test_options_that_are_wrong_are_errors_of_the_command(workspace: Path, refusal, line, words):
    assert words in refusal("check", *MODEL, *line)


def test_an_empty_file_is_an_error_of_the_command(workspace: Path, refusal):
    pd.read_csv("target.csv")[:0].to_csv("empty.csv", index=False)
    refusal("check", *MODEL, "--data", "empty.csv", "--target", "y")
