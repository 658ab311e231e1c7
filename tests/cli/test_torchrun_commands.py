"""Commands started by torchrun: the first process prints and writes, and no failure hangs."""

import os
import subprocess
from pathlib import Path

import pandas as pd
import torch

import regtta
from helpers.cli_workspace import MODEL
from helpers.preloaded_python import run_python
from regtta.statistics.source import SourceStatistics

NAN_BATCH = """
import mymodel

batches = [x * float("nan") if index == 3 else x for index, (x, _) in enumerate(mymodel.batches)]
"""

KILLED = """
import os, signal
import mymodel


def batches():
    for index, batch in enumerate(mymodel.batches):
        if index == 3 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
"""


def torchrun(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "regtta"]
    packages = str(Path(regtta.__file__).parent.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": packages}
    return run_python([*launch, *command], folder=folder, environment=environment)


def errors(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


def test_two_processes_collect_and_the_first_prints(workspace: Path, regtta):
    line = ["collect", "--model", "mymodel:make_double", "--data", "source.csv", "--target", "y", "--batch-size", "16"]
    result = torchrun(workspace, *line, "--out", "two.safetensors")
    assert result.returncode == 0, result.stderr
    first, second = result.stderr.splitlines()
    assert first.startswith("warning: The model is used as --model returns it")
    assert second.startswith("warning: BatchNorm has never seen data")
    assert result.stdout.replace("two", "one") == regtta(*line, "--out", "one.safetensors").stdout
    two, one = (SourceStatistics.load(f"{name}.safetensors") for name in ("two", "one"))
    assert (two.count, two.fingerprint) == (one.count, one.fingerprint)
    torch.testing.assert_close(two.covariance(), one.covariance(), rtol=1e-10, atol=1e-12)


def test_only_the_failing_process_prints_the_error(workspace: Path):
    (workspace / "nan_batch.py").write_text(NAN_BATCH)
    result = torchrun(workspace, "collect", *MODEL, "--data", "nan_batch:batches", "--out", "s.safetensors")
    assert result.returncode != 0
    assert result.stdout == ""
    (line,) = errors(result)
    assert line.startswith("error: process 1: The model gives non-finite features on source batch 3.")
    assert not (workspace / "s.safetensors").exists()


def test_two_processes_adapt_and_the_first_prints(workspace: Path, regtta):
    line = ["adapt", *MODEL, "--method", "bn_adapt", "--data", "target.csv", "--target", "y", "--batch-size", "16"]
    two = torchrun(workspace, *line, "--predictions", "two.csv", "--checkpoint", "c.safetensors")
    assert (two.returncode, two.stderr) == (0, "")
    assert two.stdout.replace("two.csv", "one.csv") == regtta(*line, "--predictions", "one.csv").stdout
    pd.testing.assert_frame_equal(*(pd.read_csv(f"{name}.csv") for name in ("two", "one")), rtol=1e-4)
    assert (workspace / "c.safetensors").exists()


def test_a_killed_process_ends_the_command(workspace: Path):
    (workspace / "killed.py").write_text(KILLED)
    line = ["adapt", *MODEL, "--method", "bn_adapt", "--data", "killed:batches", "--predictions", "p.csv"]
    result = torchrun(workspace, *line)
    assert result.returncode != 0
    (line,) = errors(result)
    # The first process notices either that the other does not answer, or that torchrun terminates it.
    assert line.startswith(("error: process 0: Another process of the group has ended", "error: process 0: torchrun"))
    assert "Signal 9 (SIGKILL)" in result.stderr
    assert [path.name for path in workspace.iterdir() if path.name.startswith("p.")] == []
