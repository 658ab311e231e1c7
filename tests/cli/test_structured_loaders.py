"""Loaders whose batches hold several inputs, and models that return more than the prediction."""

from pathlib import Path

import pandas as pd
import pytest
import torch

import regtta as library

MODULE = """
import torch
from torch import nn


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, table, extra):
        z = self.body(torch.cat([table, extra], dim=1))
        return {"prediction": self.head(z), "hidden": z[:, :, None]}


def make():
    torch.manual_seed(0)
    return TwoInputs()


generator = torch.Generator().manual_seed(1)
tables, extras = torch.randn(96, 3, generator=generator), torch.randn(96, 2, generator=generator)
labels = tables.sum(1)
tuples = list(zip(tables.split(16), extras.split(16), labels.split(16)))
dicts = [{"table": a, "extra": b, "y": y} for a, b, y in tuples]
swapped = [{"second": b, "first": a, "y": y} for a, b, y in tuples]
tables_only = list(tables.split(16))
"""
OUTPUT = ["--model", "two_inputs:make", "--output", "prediction"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "two_inputs.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "two_inputs", raising=False)
    return tmp_path


def expected_predictions():
    import two_inputs

    model = two_inputs.make()
    source = library.collect(model, two_inputs.dicts, output="prediction")
    adapter = library.Adapter(model, "ssa", source, output="prediction")
    return torch.cat([step.predictions for step in adapter.run(two_inputs.dicts)]).flatten()


@pytest.mark.parametrize(
    ("data", "selection"),
    [
        ("two_inputs:dicts", []),
        ("two_inputs:tuples", []),
        ("two_inputs:tuples", ["--inputs", "0,1"]),
        ("two_inputs:swapped", ["--inputs", "first,second"]),
    ],
)
def test_several_inputs_reach_the_model(folder: Path, regtta, data, selection):
    target = ["--target", "y" if "tuples" not in data else "2"]
    stats, out = folder / "s.safetensors", folder / "p.csv"
    exported = folder / "m.pt2"
    assert regtta("collect", *OUTPUT, "--data", data, *selection, "--out", stats).exit_code == 0
    command = ["adapt", *OUTPUT, "--data", data, *selection, *target, "--stats", stats, "--predictions", out]
    result = regtta(*command, "--export", exported, "--record", folder / "run.json")
    assert result.exit_code == 0, result.stderr
    found = torch.tensor(pd.read_csv(out)["prediction"].to_numpy(), dtype=torch.float32)
    torch.testing.assert_close(found, expected_predictions(), rtol=1e-4, atol=1e-5)
    import two_inputs

    program = torch.export.load(exported).module()
    arguments = two_inputs.tuples[0][:2]
    outputs = program(*arguments) if selection or "tuples" in data else program(table=arguments[0], extra=arguments[1])
    assert outputs.shape == (16, 1)


def test_missing_inputs_and_an_unknown_output_are_one_line_each(folder: Path, refusal):
    collect = ["collect", "--model", "two_inputs:make", "--weights", "w.safetensors", "--out", "s.safetensors"]
    import two_inputs
    from safetensors.torch import save_file

    save_file(two_inputs.make().state_dict(), folder / "w.safetensors")
    assert "forward needs ['table', 'extra']" in refusal(*collect, "--data", "two_inputs:tables_only")
    assert "Pass --output NAME" in refusal(*collect, "--data", "two_inputs:dicts")
    assert "There is no output='other'" in refusal(*collect, "--data", "two_inputs:dicts", "--output", "other")
