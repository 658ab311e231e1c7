"""The command as torchrun starts it: several processes, one voice, one writer, and no end that hangs."""

import os
import subprocess
import sys
from pathlib import Path

import torch

import regtta
from commands.workspace import MODEL, make_workspace
from regtta.statistics import SourceStatistics

LOADERS = """

def killed():
    import os, signal
    for index, batch in enumerate(batches):
        if index == 3 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def spoilt():
    for index, (x, _) in enumerate(batches):
        yield x * float("nan") if index == 3 else x
"""


def torchrun(folder: Path, *command: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", "regtta"]
    packages = str(Path(regtta.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, *launch, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def prepared(folder: Path) -> Path:
    make_workspace(folder)
    with (folder / "mymodel.py").open("a") as module:
        module.write(LOADERS)
    return folder


def errors(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


def test_two_processes_collect_and_one_speaks(tmp_path: Path):
    line = ["collect", "--model", "mymodel:make_double", "--data", "source.csv", "--target", "y", "--batch-size", "16"]
    result = torchrun(prepared(tmp_path), *line, "--out", "two.safetensors")
    assert (result.returncode, result.stderr) == (0, "")
    facts = [tuple(told.split(maxsplit=1)) for told in result.stdout.splitlines()]
    assert facts[0] == ("samples", "120")
    assert facts[-1] == ("written", "two.safetensors")
    assert len(facts) == len(dict(facts))
    alone = torchrun(tmp_path, *line, "--out", "one.safetensors", processes=1)
    assert alone.stdout == result.stdout.replace("two", "one")
    two, one = (SourceStatistics.load(tmp_path / f"{name}.safetensors") for name in ("two", "one"))
    assert (two.count, two.fingerprint) == (one.count, one.fingerprint)
    torch.testing.assert_close(two.covariance(), one.covariance(), rtol=1e-10, atol=1e-12)


def test_the_process_that_has_the_error_tells_it_alone(tmp_path: Path):
    result = torchrun(prepared(tmp_path), "collect", *MODEL, "--data", "mymodel:spoilt", "--out", "s.safetensors")
    assert result.returncode != 0
    assert result.stdout == ""
    (told,) = errors(result)
    assert told.startswith("error: process 1: The model gives non-finite features on source batch 3.")
    assert not (tmp_path / "s.safetensors").exists()


def test_a_process_that_is_killed_ends_the_command(tmp_path: Path):
    result = torchrun(prepared(tmp_path), "collect", *MODEL, "--data", "mymodel:killed", "--out", "s.safetensors")
    assert result.returncode != 0
    (told,) = errors(result)
    # Whichever the first notices sooner: that the other does not answer, or that torchrun ends it.
    assert told.startswith(("error: process 0: Another process of the group has ended", "error: process 0: torchrun"))
    assert "Signal 9 (SIGKILL)" in result.stderr
    assert not (tmp_path / "s.safetensors").exists()
