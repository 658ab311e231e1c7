import json
import sys
from pathlib import Path

import pytest
import torch

import regtta as library
from helpers.attaching import attach
from helpers.cli_workspace import MODEL, extract_inputs, library_model

ADAPT = ["adapt", *MODEL, "--stats", "stats.safetensors", "--set", "k=3", "--batch-size", "10", "--data", "target.csv",
         "--target", "y"]  # fmt: skip


@pytest.mark.usefixtures("statistics")
def test_the_files_are_those_of_the_librarys_monitor(workspace: Path, regtta):
    args = ("--monitor", "s.jsonl", "--prometheus", "s.prom", "--tensorboard", "runs", "--predictions", "p.csv")
    result = regtta(*ADAPT, *args)
    assert (result.exit_code, result.stderr) == (0, "")
    source = library.SourceStatistics.load("stats.safetensors")
    lines = library.monitoring.JsonLines("expected.jsonl")
    monitor = attach(library.Monitor(writers=[lines]), library.Adapter(library_model(), library.SSA(k=3), source))
    list(monitor.adapter.run(extract_inputs(Path("target.csv")).split(10)))
    assert Path("s.jsonl").read_text() == Path("expected.jsonl").read_text()
    assert "regtta_shift_source " in Path("s.prom").read_text()
    assert list(Path("runs").iterdir())
    assert [line.split()[-1] for line in result.stdout.splitlines()[-4:]] == ["p.csv", "s.jsonl", "s.prom", "runs"]
    alarms = [line.split()[1].rstrip(",") for line in result.stdout.splitlines() if line.startswith("alarm ")]
    assert alarms == (list(monitor.raised) or ["none"])
    before = Path("p.csv").read_text()
    assert regtta(*ADAPT, "--predictions", "p.csv", "--force").exit_code == 0
    assert Path("p.csv").read_text() == before  # looking changes nothing


@pytest.mark.usefixtures("statistics")
def test_alarms_are_printed_with_their_actions(workspace: Path, regtta):
    torch.manual_seed(0)
    rows = torch.randn(600, 3) * 3 + 4
    Path("far.csv").write_text("a,b,c\n" + "\n".join(",".join(f"{v:.4f}" for v in row) for row in rows.tolist()))
    args = [*ADAPT[: ADAPT.index("--data")], "--data", "far.csv", "--monitor", "s.jsonl"]
    result = regtta(*args)
    assert result.exit_code == 0, result.stderr
    assert "ShiftAlarm, still on, raised once. Look at what changed in the data" in " ".join(result.stdout.split())
    first = Path("s.jsonl").read_text()
    events = [json.loads(line) for line in first.splitlines() if '"event"' in line]
    assert "ShiftAlarm" in {event["alarm"] for event in events}
    assert "exists" in regtta(*args).stderr
    assert regtta(*args, "--force").exit_code == 0
    assert Path("s.jsonl").read_text() == first  # replaced, not added to


def test_monitoring_requires_statistics(workspace: Path, refusal):
    args = ("adapt", *MODEL, "--method", "bn_adapt", "--data", "target.csv")
    assert "--prometheus needs source statistics. Pass --stats FILE" in refusal(*args, "--prometheus", "s.prom")
    assert "--tensorboard" in refusal(*args)


@pytest.mark.usefixtures("statistics")
def test_tensorboards_folder_and_package_are_checked_first(workspace: Path, refusal, monkeypatch):
    Path("runs").mkdir()
    Path("runs/mine").touch()
    assert "runs is not empty" in refusal(*ADAPT, "--tensorboard", "runs")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert 'pip install "regtta[monitor]"' in refusal(*ADAPT, "--tensorboard", "new")
    assert not Path("new").exists()
