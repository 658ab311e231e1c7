from pathlib import Path

import pytest
import torch

import regtta
from commands.workspace import MODEL, SOURCE_ROWS, inputs_of, library_model
from regtta.commands.collect import CollectOptions, collect_statistics
from regtta.commands.data.opening import DataOptions

COLLECT = ["collect", *MODEL, "--data", "source.csv", "--target", "y"]


def test_the_file_holds_what_the_library_collects(workspace: Path, statistics: Path):
    expected = regtta.collect(library_model(), inputs_of(workspace / "source.csv").split(256))
    found = regtta.SourceStatistics.load(statistics)
    assert (found.count, found.head, found.fingerprint) == (SOURCE_ROWS, "3", expected.fingerprint)
    for name in ("mean", "variances", "feature_variances"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_the_report_and_the_progress(workspace: Path):
    told: list[tuple[int, int | None]] = []
    data = DataOptions("target.parquet", target="y", batch_size=32)
    options = CollectOptions(
        "mymodel:make", data, Path("s.safetensors"), weights=Path("weights.safetensors"), head="3"
    )
    report = collect_statistics(options, lambda seen, total: told.append((seen, total)))
    found = regtta.SourceStatistics.load("s.safetensors")
    assert told == [(32, 70), (64, 70), (70, 70)]
    assert (report.samples, report.head, report.dimensions) == (70, "3", 8)
    assert (report.valid_dimensions, report.rank) == (found.valid_dimensions, found.rank)


def test_the_summary_says_what_was_collected(workspace: Path, regtta):
    result = regtta(*COLLECT, "--out", "s.safetensors")
    facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert facts["samples"] == "120"
    assert facts["head"] == "3"
    assert facts["dimensions"] == "8"
    assert facts["written"] == "s.safetensors"
    assert {"valid", "rank"} <= facts.keys()
    assert result.stderr == ""  # no progress bar off a terminal


def test_columns_batches_and_another_head(workspace: Path, regtta):
    result = regtta(
        "collect", *MODEL, "--data", "source.csv", "--columns", "a,b,c", "--batch-size", "7", "--head", "0",
        "--device", "cpu", "--out", "s.safetensors",
    )  # fmt: skip
    assert result.exit_code == 0
    mean = inputs_of(workspace / "source.csv").double().mean(0)
    from regtta.statistics import SourceStatistics

    torch.testing.assert_close(SourceStatistics.load("s.safetensors").mean, mean)


def test_a_model_in_double_precision_gets_doubles(workspace: Path, regtta):
    result = regtta("collect", "--model", "mymodel:make_double", "--data", "source.csv", "--target", "y",
                    "--out", "s.safetensors")  # fmt: skip
    assert result.exit_code == 0, result.stderr


def test_dict_batches_of_a_loader(workspace: Path, regtta):
    assert regtta("collect", *MODEL, "--data", "mymodel:dicts", "--inputs", "image", "--out", "s.safetensors")
    from regtta.statistics import SourceStatistics

    assert SourceStatistics.load("s.safetensors").count == 70


def test_nothing_is_overwritten_without_force(workspace: Path, regtta, refusal):
    (workspace / "s.safetensors").write_text("mine")
    assert "pass --force" in refusal(*COLLECT, "--out", "s.safetensors")
    assert (workspace / "s.safetensors").read_text() == "mine"
    assert regtta(*COLLECT, "--out", "s.safetensors", "--force").exit_code == 0
    assert regtta("inspect", "s.safetensors").exit_code == 0


def test_outputs_are_checked_before_any_work(workspace: Path, refusal):
    (workspace / "s.safetensors").write_text("mine")
    line = refusal("collect", "--model", "mymodel:fails", "--data", "none.csv", "--out", "s.safetensors")
    assert "--force" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "source.csv"], r"shape (120, 4): RuntimeError"),
        (["--data", "source.csv"], "4 columns were taken as inputs: a, b, c, y. Pick others with --columns"),
        (["--data", "target.npz", "--inputs", "y"], "Name another array with --inputs"),
        (["--data", "mymodel:bare", "--head", "9"], "Pass --head NAME; linear layers here: ['0', '3']"),
        (["--data", "mymodel:dicts"], "Pass --inputs KEY; keys here: ['image', 'age']"),
        (["--data", "mymodel:bare", "--inputs", "x"], "Leave --inputs out"),
        (["--data", "empty.csv"], "gave no samples"),
        (["--data", "holes.csv"], "non-finite features on source batch 0"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_each(workspace: Path, refusal, arguments, words):
    (workspace / "empty.csv").write_text("a,b,c\n")
    (workspace / "holes.csv").write_text("a,b,c\n1,,2\n3,4,5\n")
    assert words in refusal("collect", *MODEL, *arguments, "--out", "s.safetensors")
    assert not (workspace / "s.safetensors").exists()
