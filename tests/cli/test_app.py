import logging
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

import regtta as library
from helpers.cli_images import make_photos
from helpers.cli_workspace import MODEL
from regtta.cli.app import app
from regtta.cli.help_examples import EXAMPLES
from regtta.errors import MissingFileError

ADAPT = ["adapt", *MODEL, "--stats", "stats.safetensors", "--data", "target.csv", "--target", "y"]
LONG = ("demo", "label-shift", "reproduce", "stress")  # these take minutes, and some need data sets
RUNNABLE = [(name, line) for name, lines in EXAMPLES.items() if name not in LONG for line in lines]


def split_words(example: str) -> list[str]:
    return shlex.split(example.replace("\\\n", " "))


def make_image_workspace(folder: Path) -> None:
    make_photos(folder)
    make_photos(folder, "new-photos", brightness=60)
    (folder / "imagemodel.py").rename(folder / "faces.py")
    namespace: dict[str, Any] = {}
    exec((folder / "faces.py").read_text(), namespace)
    save_file(namespace["make"]().state_dict(), folder / "faces.safetensors")


def test_the_examples_in_the_help_work_one_after_the_other(workspace: Path, regtta):
    make_image_workspace(workspace)
    for name, example in RUNNABLE:
        program, *arguments = split_words(example)
        assert (program, arguments[0]) == ("regtta", name)
        result = regtta(*arguments)
        assert result.exit_code == 0, f"{example}\n{result.stderr}"
    made = {
        "stats.safetensors",
        "predictions.csv",
        "adapted.safetensors",
        "adapted.onnx",
        "steps.jsonl",
        "from-loader.parquet",
        "run.json",
        "adaptation.html",
        "ages.csv",
    }
    assert made <= {path.name for path in workspace.iterdir()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_help_shows_its_examples_as_they_are(regtta, name):
    shown = [line.strip() for line in regtta(name, "--help").stdout.splitlines()]
    for example in EXAMPLES[name]:
        first, *rest = example.split("\n")
        assert f"$ {first}" in shown
        assert all(line.strip() in shown for line in rest)


def test_the_version(regtta):
    assert regtta("--version").stdout == f"regtta {library.__version__}\n"


@pytest.mark.parametrize("arguments", [["collect"], ["nothing"], ["adapt", *MODEL, "--protocol", "sideways"]])
def test_usage_errors_exit_with_two(regtta, arguments):
    assert regtta(*arguments).exit_code == 2


def test_the_summary_of_an_adaptation(workspace: Path, statistics: Path, regtta):
    lines = regtta(*ADAPT, "--set", "k=3", "--batch-size", "23", "--predictions", "p.csv").stdout.splitlines()
    assert "learned from 3 of 4 batches" in lines
    assert lines[lines.index("learned from 3 of 4 batches") + 1].split(maxsplit=1) == [
        "refused",
        "1: a batch of 1 has no variance",
    ]
    assert [line.split()[0] for line in lines if re.search(r"\d\.\d{4}", line)] == ["unadapted", "ssa,"]
    assert lines[-1].split() == ["written", "p.csv"]


def test_missing_values_are_mentioned(workspace: Path, statistics: Path, regtta):
    text = Path("target.csv").read_text().splitlines()
    text[2] = "," + text[2].split(",", 1)[1]
    Path("target.csv").write_text("\n".join(text))
    shown = regtta(*ADAPT, "--set", "k=3", "--predictions", "p.csv").stdout
    assert re.search(r"^not finite +1 prediction$", shown, re.MULTILINE)
    assert re.search(r"^not scored +1 row with missing values$", shown, re.MULTILINE)


def test_long_lists_of_reasons_are_truncated(workspace: Path, statistics: Path, regtta):
    # Batches of 2 to 8 samples of which none is finite: seven reasons.
    (workspace / "poor.py").write_text(
        "import torch\nbatches = [torch.full((i + 2, 3), float('nan')) for i in range(7)]\n"
    )
    shown = regtta("adapt", *MODEL, "--method", "bn_adapt", "--data", "poor:batches", "--predictions", "p.csv")
    refused = [line for line in shown.stdout.splitlines() if line.startswith("refused")]
    assert len(refused) == 6
    assert refused[-1].split(maxsplit=1)[1] == "2: for other reasons"


def test_warnings_of_the_library_reach_the_user(workspace: Path, regtta):
    narrow = "import torch\nfrom torch import nn\ndef make():\n    torch.manual_seed(0)\n"
    narrow += "    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 8), nn.Linear(8, 1))\n"
    Path("narrow.py").write_text(narrow)
    common = ["--model", "narrow:make", "--data", "source.csv", "--target", "y"]
    assert regtta("collect", *common, "--out", "n.safetensors").exit_code == 0
    for _ in range(2):  # the warning is not repeated
        result = regtta("adapt", *common, "--stats", "n.safetensors", "--set", "k=5", "--predictions",
                        "p.csv", "--force")  # fmt: skip
        assert result.exit_code == 0, result.stderr
        assert result.stderr == "warning: k=5 is beyond the numerical rank 2 of the source features: using 2.\n"


def test_the_progress_bar_is_drawn_on_a_terminal_only(workspace: Path, regtta, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    result = regtta("collect", *MODEL, "--data", "source.csv", "--target", "y", "--out", "s.safetensors")
    assert "collecting" in result.stderr
    assert "collecting" not in result.stdout


def test_a_missing_package_is_one_line(workspace: Path, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    line = refusal("collect", *MODEL, "--data", "source.csv", "--out", "s.safetensors")
    assert 'pip install "regtta[cli]"' in line


def test_any_other_missing_module_raises(workspace: Path, regtta, monkeypatch):
    monkeypatch.setitem(sys.modules, "regtta.cli.inspect", None)
    with pytest.raises(ModuleNotFoundError):
        regtta("inspect", "s.safetensors")


@pytest.fixture
def demo_calls(monkeypatch) -> list[dict[str, object]]:
    """Replace the demo by a stub and return the list of its calls."""
    calls: list[dict[str, object]] = []
    module = ModuleType("regtta_bench.demo")
    module.run_demo = lambda **given: calls.append(given)
    monkeypatch.setitem(sys.modules, "regtta_bench.demo", module)
    return calls


def test_the_demo_receives_its_options(workspace: Path, regtta, demo_calls):
    assert regtta("demo").exit_code == 0
    assert regtta("demo", "--out", "there", "--seed", "7", "--sources", "2").exit_code == 0
    seen = [(call["out"], call["seed"], call["sources"]) for call in demo_calls]
    assert seen == [(Path("regtta-demo"), 0, 3), (Path("there"), 7, 2)]


def test_the_demo_requires_force_for_a_folder_in_use(workspace: Path, regtta, refusal, demo_calls):
    (workspace / "there").mkdir()
    (workspace / "there" / "mine").write_text("mine")
    assert "pass --force" in refusal("demo", "--out", "there")
    assert demo_calls == []
    assert regtta("demo", "--out", "there", "--force").exit_code == 0
    assert len(demo_calls) == 1


def test_logging_is_set_up_once(regtta):
    for _ in range(3):
        regtta("methods")
    names = [type(handler).__name__ for handler in logging.getLogger("regtta").handlers]
    assert names.count("StderrWarningHandler") == 1


def test_traceback_option_raises_the_original_error(workspace: Path):
    wrong = ["inspect", "absent.safetensors"]
    plain, asked = (CliRunner().invoke(app, [*first, *wrong]) for first in ([], ["--traceback"]))
    assert plain.exit_code == 2
    assert isinstance(plain.exception, SystemExit)
    assert isinstance(asked.exception, MissingFileError)
