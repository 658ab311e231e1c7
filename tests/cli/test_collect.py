from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import regtta
from helpers.cli_workspace import MODEL, SOURCE_ROWS, extract_inputs, library_model
from regtta.cli.collect import CollectOptions, collect_statistics
from regtta.statistics.source import SourceStatistics

COLLECT = ["collect", *MODEL, "--data", "source.csv", "--target", "y"]


def test_the_file_holds_the_statistics_of_the_library(workspace: Path, statistics: Path):
    expected = regtta.collect(library_model(), extract_inputs(workspace / "source.csv").split(256))
    found = regtta.SourceStatistics.load(statistics)
    assert (found.count, found.head, found.fingerprint) == (SOURCE_ROWS, "3", expected.fingerprint)
    for name in ("mean", "variances", "feature_variances"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_the_report_and_the_progress(workspace: Path):
    reported: list[tuple[int, int | None]] = []
    options = CollectOptions(
        model="mymodel:make",
        data="target.parquet",
        out=Path("s.safetensors"),
        weights=Path("weights.safetensors"),
        target="y",
        head="3",
        batch_size=32,
    )
    report = collect_statistics(options, lambda seen, total: reported.append((seen, total)))
    found = regtta.SourceStatistics.load("s.safetensors")
    assert reported == [(32, 70), (64, 70), (70, 70)]
    assert (report.samples, report.head, report.dimensions) == (70, "3", 8)
    assert (report.valid_dimensions, report.rank) == (found.valid_dimensions, found.rank)


def test_the_summary_describes_the_collected_statistics(workspace: Path, regtta):
    result = regtta(*COLLECT, "--out", "s.safetensors")
    facts = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert facts["samples"] == "120"
    assert facts["head"] == "3"
    assert facts["dimensions"] == "8"
    assert facts["written"] == "s.safetensors"
    assert {"valid", "rank"} <= facts.keys()
    assert result.stderr == ""  # no progress bar off a terminal


def test_a_model_without_weights_is_used_with_one_warning(workspace: Path, regtta):
    line = ["collect", "--model", "mymodel:make", "--data", "source.csv", "--target", "y", "--out", "s.safetensors"]
    result = regtta(*line)
    assert result.exit_code == 0
    assert result.stderr == (
        "warning: The model is used as --model returns it. If that function does not load trained weights, pass "
        "--weights FILE.\n"
    )


def test_columns_batches_and_another_head(workspace: Path, regtta):
    result = regtta(
        "collect", *MODEL, "--data", "source.csv", "--columns", "a,b,c", "--batch-size", "7", "--head", "0",
        "--device", "cpu", "--out", "s.safetensors",
    )  # fmt: skip
    assert result.exit_code == 0
    mean = extract_inputs(workspace / "source.csv").double().mean(0)
    from regtta.statistics.source import SourceStatistics

    torch.testing.assert_close(SourceStatistics.load("s.safetensors").mean, mean)


def test_a_model_in_double_precision_gets_doubles(workspace: Path, regtta):
    result = regtta("collect", "--model", "mymodel:make_double", "--data", "source.csv", "--target", "y",
                    "--out", "s.safetensors")  # fmt: skip
    assert result.exit_code == 0, result.stderr


def test_dict_batches_of_a_loader(workspace: Path, regtta):
    assert regtta("collect", *MODEL, "--data", "mymodel:dicts", "--inputs", "image", "--out", "s.safetensors")
    from regtta.statistics.source import SourceStatistics

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
        (["--data", "source.csv"], "4 columns were used as inputs: a, b, c, y. Select others with --columns"),
        (["--data", "target.npz", "--inputs", "y"], "Name another array with --inputs"),
        (["--data", "mymodel:bare", "--head", "9"], "Pass --head NAME; linear layers here: ['0', '3']"),
        (["--data", "mymodel:dicts"], "Pass --inputs NAME, or a list of keys; keys here: ['image', 'age']"),
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


def test_statistics_for_a_method_are_collected_and_found_by_adapt(workspace, regtta, refusal):
    collect = ["collect", *MODEL, "--data", "source.csv", "--target", "y"]
    adapt = ["adapt", *MODEL, "--data", "target.csv", "--target", "y", "--method", "feature_restoration"]
    assert regtta(*collect, "--out", "plain.safetensors").exit_code == 0
    line = refusal(*adapt, "--stats", "plain.safetensors", "--predictions", "p.csv")
    assert "regtta collect --method feature_restoration" in line

    wanted = "feature_restoration:bins=4,temperature=0.1"
    assert regtta(*collect, "--method", wanted, "--out", "histograms.safetensors").exit_code == 0
    done = regtta(
        *[*adapt, "--set", "bins=4", "--set", "temperature=0.1"],
        *["--stats", "histograms.safetensors", "--predictions", "p.csv"],
    )
    assert done.exit_code == 0, done.stderr


def test_two_passes_over_an_iterator_are_rejected(workspace, refusal):
    line = ["collect", *MODEL, "--data", "mymodel:once", "--method", "feature_restoration", "--out", "s.safetensors"]
    assert "feature_restoration needs 2 passes" in refusal(*line)


def test_the_branch_of_ttt_is_stored(workspace, regtta, refusal):
    line = ["collect", *MODEL, "--data", "source.csv", "--target", "y", "--method", "ttt", "--out", "s.safetensors"]
    assert "Pass --branch FILE" in refusal(*line)
    save_file({"other": torch.zeros(2)}, "wrong.safetensors")
    assert "Expected one linear layer in wrong.safetensors" in refusal(*line, "--branch", "wrong.safetensors")
    for layer in (torch.nn.Linear(8, 4), torch.nn.Linear(8, 4, bias=False)):
        save_file({f"rotation.{k}": v for k, v in layer.state_dict().items()}, "branch.safetensors")
        assert regtta(*line, "--branch", "branch.safetensors", "--force").exit_code == 0
        stored = SourceStatistics.load("s.safetensors").extras["ttt/weight"]
        assert torch.equal(stored, layer.weight)
