"""``regtta select`` on the user's folder."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import regtta as library
from helpers.cli_images import make_photos
from helpers.cli_workspace import COLUMNS, MODEL, extract_inputs, labels_of, library_model

LABELLED = ["--labelled", "labelled.csv", "--target", "y"]
STREAM = ["--data", "target.csv"]


def use_labels_of_clean_sensors(folder: Path) -> None:
    """Replace target and labels: the sensors have another gain and offset, which bn_adapt repairs."""
    model, generator = library_model(), torch.Generator().manual_seed(1)
    source = extract_inputs(folder / "source.csv")
    for name, count in (("target.csv", 400), ("labelled.csv", 48)):
        true = source.mean(dim=0) + source.std(dim=0) * torch.randn(count, 3, generator=generator)
        frame = pd.DataFrame((3 * true + 2).numpy(), columns=COLUMNS)
        with torch.no_grad():
            outputs = model.train()(true)[:, 0]
        frame["y"] = outputs.numpy()
        frame.to_csv(folder / name, index=False)


def as_json(result) -> dict:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_command_gives_the_result_of_the_function(workspace: Path, statistics: Path, regtta):
    line = [*MODEL, *STREAM, *LABELLED, "--stats", statistics.name]
    found = as_json(regtta("select", *line, "--batch-size", "16", "--correct", "affine", "--json"))
    expected = library.select(
        None,
        library_model(),
        statistics,
        extract_inputs(workspace / "labelled.csv"),
        torch.tensor(labels_of(workspace / "labelled.csv")),
        stream=extract_inputs(workspace / "target.csv").split(16),
        correct="affine",
    )
    assert found == json.loads(json.dumps(expected.to_dict()))


def test_the_table_and_the_next_command(workspace: Path, statistics: Path, regtta):
    use_labels_of_clean_sensors(workspace)
    result = regtta(
        "select", *MODEL, *STREAM, *LABELLED, "--stats", statistics.name, "--candidate", "bn_adapt:batch_norm=debiased",
        "--candidate", "ssa:k=2,batch_norm=source",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["labelled", "48", "samples"] in lines
    assert ["adapted", "to", "400", "samples"] in lines
    assert ["recommended", "bn_adapt:batch_norm=debiased"] in lines
    assert lines[-1] == ["next", *["regtta", "adapt", "--method", "bn_adapt", "--set", "batch_norm=debiased", "..."]]
    other = "ssa:k=2,batch_norm=source"
    rows = {words[0]: words for words in lines if words and words[0] in ("source", other)}
    assert len(rows["source"]) == 4  # no comparison with itself
    assert rows[other][-1] in ("help", "helps", "harms")


def test_nothing_is_recommended_that_is_not_shown_to_help(workspace: Path, statistics: Path, regtta):
    model = library_model()
    frame = pd.read_csv("labelled.csv")
    with torch.no_grad():
        frame["y"] = model(extract_inputs(workspace / "labelled.csv"))[:, 0].numpy() + np.random.default_rng(0).normal(
            size=len(frame)
        )
    frame.to_csv("labelled.csv", index=False)
    result = regtta("select", *MODEL, *STREAM, *LABELLED, "--stats", statistics.name)
    assert "No candidate is shown to help" in result.stdout
    assert result.stdout.splitlines()[-1].split(maxsplit=1) == ["next", "use the model as it is"]


def test_a_correction_is_printed(workspace: Path, regtta):
    frame = pd.read_csv("labelled.csv")
    with torch.no_grad():
        frame["y"] = 1 + 2 * library_model()(extract_inputs(workspace / "labelled.csv"))[:, 0].numpy()
    frame.to_csv("labelled.csv", index=False)
    result = regtta("select", *MODEL, *STREAM, *LABELLED, "--correct", "affine", "--candidate", "bn_adapt")
    assert "source + affine" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("correction")]
    assert "· prediction" in line


@pytest.mark.parametrize("kind", ["target.parquet", "target.csv.gz", "target.npz", "mymodel:bare"])
def test_streams_of_every_kind_give_the_same_scores(workspace: Path, regtta, kind):
    if kind == "mymodel:bare":
        Path("mymodel.py").write_text(
            Path("mymodel.py").read_text()
            + "import pandas as pd\n"
            + "bare = list(torch.tensor(pd.read_csv('target.csv')[['a', 'b', 'c']].to_numpy(), dtype=torch.float32)"
            + ".split(64))\n"
        )
    line = [*MODEL, *LABELLED, "--candidate", "bn_adapt", "--json"]
    expected = as_json(regtta("select", *line, *STREAM))
    assert as_json(regtta("select", *line, "--data", kind)) == expected
    assert expected["stream"] == 70


def test_labelled_samples_in_parquet_and_of_a_loader(workspace: Path, regtta):
    line = [*MODEL, *STREAM, "--columns", "a,b,c", "--candidate", "bn_adapt", "--json"]
    expected = as_json(regtta("select", *line, *LABELLED))
    pd.read_csv("labelled.csv").to_parquet("labelled.parquet")
    assert as_json(regtta("select", *line, "--labelled", "labelled.parquet", "--target", "y")) == expected
    Path("mine.py").write_text(
        "import mymodel, pandas as pd, torch\nfrom torch import nn\n"
        "parts = torch.tensor(pd.read_csv('labelled.csv').to_numpy()).split(10)\n"
        "batches = [(part[:, :3].float(), part[:, 3]) for part in parts]\n"
        "pairs = [{'left': p[:, :1].float(), 'right': p[:, 1:3].float(), 'y': p[:, 3]} for p in parts]\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.net = mymodel.make()\n"
        "    def forward(self, left, right):\n        return self.net(torch.cat([left, right], 1))\n"
    )
    assert as_json(regtta("select", *line, "--labelled", "mine:batches", "--target", "1")) == expected
    pairs = ["--labelled", "mine:pairs", "--target", "y", "--data", "mine:pairs", "--candidate", "bn_adapt", "--json"]
    assert as_json(regtta("select", "--model", "mine:Net", *pairs))["labels"] == 32


def test_without_a_stream_the_labelled_samples_are_adapted_to(workspace: Path, regtta):
    assert as_json(regtta("select", *MODEL, *LABELLED, "--candidate", "bn_adapt", "--json"))["stream"] == 32


def test_columns_of_the_stream_are_those_of_the_labelled_samples(workspace: Path, regtta):
    table = pd.read_csv("target.csv")
    line = [*MODEL, *LABELLED, "--candidate", "bn_adapt", "--json"]
    expected = as_json(regtta("select", *line, *STREAM))
    table[["c", "a", "b"]].to_csv("other.csv", index=False)  # no labels, another order
    assert as_json(regtta("select", *line, "--data", "other.csv")) == expected


def test_images(workspace: Path, regtta):
    make_photos(workspace)
    make_photos(workspace, "new-photos", brightness=60)
    line = ["--image-size", "16", "--target", "age", "--candidate", "bn_adapt", "--json"]
    found = as_json(
        regtta("select", "--model", "imagemodel:make", "--data", "photos", "--labelled", "new-photos", *line)
    )
    assert found["labels"] >= 8


def test_the_progress_bar_is_drawn_on_a_terminal(workspace: Path, regtta, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    result = regtta("select", *MODEL, *STREAM, *LABELLED, "--candidate", "bn_adapt", "--json")
    assert "adapting" in result.stderr
    assert "adapting" not in result.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--labelled", "absent.csv", "--target", "y"], "There is no file absent.csv"),
        (["--labelled", "labelled.csv", "--target", "z"], "has no column 'z'"),
        ([*LABELLED, "--candidate", "nope"], "Expected the method to be one of"),
        ([*LABELLED, "--candidate", "ssa"], "ssa needs source statistics"),
        ([*LABELLED, "--candidate", "oracle"], "learns from labels"),
        ([*LABELLED, "--confidence", "95"], "confidence to be a number between 0 and 1"),
        ([*LABELLED, "--candidate", "bn_adapt", "--data", "mymodel:breaks_off"], "the disk is gone"),
    ],
)
def test_wrong_options_are_one_line(workspace: Path, refusal, line, words):
    assert words in refusal("select", *MODEL, *line)


def test_too_few_labels_are_one_line(workspace: Path, refusal):
    for count, words in ((5, "at least 8 labelled samples, found 5"), (0, "")):
        pd.read_csv("labelled.csv")[:count].to_csv("few.csv", index=False)
        assert words in refusal("select", *MODEL, *STREAM, "--labelled", "few.csv", "--target", "y")
