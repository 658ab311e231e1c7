import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

import regtta as library
from helpers.cli_workspace import MODEL, extract_inputs, library_model
from regtta.persistence.export import SUFFIXES, read_provenance

ADAPT = ["adapt", *MODEL, "--stats", "stats.safetensors", "--set", "k=3", "--set", "lr=0.05", "--batch-size", "23",
         "--data", "target.csv", "--target", "y"]  # fmt: skip


def adapter_of(statistics: Path) -> library.Adapter:
    """Return the adapter of the same adaptation in Python; its last batch is a single row."""
    source = library.SourceStatistics.load(statistics)
    adapter = library.Adapter(library_model(), library.SSA(k=3, lr=0.05), source)
    list(adapter.run(extract_inputs(Path("target.csv")).split(23)))
    return adapter


def outputs(path: str, x: torch.Tensor) -> np.ndarray:
    if path.endswith(".onnx"):
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})[0]
    if path.endswith(".pt2"):
        return torch.export.load(path).module()(x).detach().numpy()
    model = library_model()
    model.load_state_dict(load_file(path), strict=True)
    return model(x).detach().numpy()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_file_holds_the_librarys_adapted_model_and_its_provenance(
    workspace: Path, statistics: Path, regtta, suffix
):
    name = f"m{suffix}"
    result = regtta(*ADAPT, "--export", name, "--adapted-weights", "w.safetensors")
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    assert [line.split() for line in result.stdout.splitlines()[-2:]] == [
        ["written", "w.safetensors"],
        ["written", name],
    ]
    adapter, x = adapter_of(statistics), extract_inputs(Path("source.csv"))
    np.testing.assert_allclose(outputs(name, x), adapter.predict(x).numpy(), rtol=0, atol=1e-5)
    found = json.loads(regtta("inspect", name, "--json").stdout)
    assert found == read_provenance("w.safetensors").to_dict()
    assert (found["batches"], found["learned"], found["samples_behind_statistics"]) == (4, 3, 120)
    assert (found["method"]["type"], found["method"]["k"], found["head"]) == ("SSA", 3, "3")
    assert found["source"] == library.fingerprint(library_model())
    assert found["adapted"] == library.fingerprint(adapter.export())
    lines = [line.split(maxsplit=1) for line in regtta("inspect", name).stdout.splitlines()]
    for line in (["method", "SSA"], ["k=3"], ["statistics", "of 120 samples"], ["source", found["source"]]):
        assert line in lines
    assert "learned from 3 of 4 batches" in regtta("inspect", name).stdout


def test_provenance_of_a_method_without_statistics(workspace: Path, regtta):
    regtta("adapt", *MODEL, "--method", "source", "--data", "target.csv", "--target", "y", "--export", "m.safetensors")
    shown = [line.split() for line in regtta("inspect", "m.safetensors").stdout.splitlines()]
    assert ["statistics", "none"] in shown
    assert ["head", "none"] in shown


def test_exported_weights_can_be_adapted_again(workspace: Path, statistics: Path, regtta):
    regtta(*ADAPT, "--export", "m.safetensors")
    again = ["adapt", "--model", "mymodel:make", "--weights", "m.safetensors", "--method", "bn_adapt",
             "--data", "target.csv", "--target", "y", "--export", "n.safetensors"]  # fmt: skip
    assert regtta(*again).exit_code == 0
    assert read_provenance("n.safetensors").source == read_provenance("m.safetensors").adapted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--export", "m.pt"], "to end in .safetensors or .pt2 or .onnx"),
        (["--export", "w.safetensors", "--adapted-weights", "w.safetensors"], "both name w.safetensors"),
        (["--export", "stats.safetensors", "--force"], "is also an input"),
        (["--export", "no/m.onnx"], "no folder no"),
    ],
)
def test_invalid_names_are_rejected(workspace: Path, statistics: Path, refusal, arguments, words):
    assert words in refusal(*ADAPT, *arguments)


def test_existing_files_are_kept_without_force(workspace: Path, statistics: Path, regtta, refusal):
    Path("m.onnx").write_text("mine")
    assert "m.onnx exists" in refusal(*ADAPT, "--export", "m.onnx")
    assert Path("m.onnx").read_text() == "mine"
    assert regtta(*ADAPT, "--export", "m.onnx", "--force").exit_code == 0
    assert read_provenance("m.onnx").learned == 3


def test_a_missing_package_is_reported_before_anything_is_loaded(workspace: Path, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    line = refusal("adapt", "--model", "nowhere:make", "--data", "target.csv", "--export", "m.onnx")
    assert 'onnxruntime, which is not installed: pip install "regtta[export]"' in line


def test_a_model_that_cannot_be_traced_is_rejected_after_its_first_batch(workspace: Path, regtta, refusal):
    (workspace / "branching.py").write_text(
        "import torch\nfrom mymodel import make as plain\nseen = []\n"
        "class Branching(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.net = plain()\n"
        "    def forward(self, x):\n"
        "        seen.append(len(x))\n"
        "        return self.net(x if x.sum() > 0 else -x)\n"
    )
    import branching

    common = ["adapt", "--model", "branching:Branching", "--method", "bn_adapt", "--data", "target.csv",
              "--target", "y", "--batch-size", "7"]  # fmt: skip
    line = refusal(*common, "--predictions", "p.csv", "--export", "m.pt2")
    assert "torch.export cannot trace the model" in line
    assert len(branching.seen) < 7  # of ten batches
    assert not Path("m.pt2").exists()
    assert not Path("p.csv").exists()
    assert regtta(*common, "--predictions", "p.csv", "--export", "m.safetensors").exit_code == 0


def test_predictions_are_kept_if_onnx_cannot_represent_the_model(workspace: Path, refusal):
    (workspace / "rare.py").write_text(
        "import torch\nfrom mymodel import make as plain\n"
        "class Rare(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.net = plain()\n"
        "    def forward(self, x):\n        return self.net(torch.special.i0e(x))\n"
    )
    line = refusal("adapt", "--model", "rare:Rare", "--method", "bn_adapt", "--data", "target.csv", "--target", "y",
                   "--predictions", "p.csv", "--export", "m.onnx")  # fmt: skip
    assert "cannot be written as ONNX" in line
    assert len(Path("p.csv").read_text().splitlines()) == 71
    assert not Path("m.onnx").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.onnx", b"hello there", "not an ONNX file"),
        ("m.pt2", b"hello there", "not a torch.export program"),
        ("m.onnx", None, "no file m.onnx"),
        ("m.pt2", None, "no file m.pt2"),
    ],
)
def test_inspecting_unreadable_files(workspace: Path, refusal, name, content, words):
    if content is not None:
        Path(name).write_bytes(content)
    assert words in refusal("inspect", name)


def test_plain_weights_are_not_mistaken_for_statistics(workspace: Path, refusal):
    assert "not one of source statistics" in refusal("inspect", "weights.safetensors")
