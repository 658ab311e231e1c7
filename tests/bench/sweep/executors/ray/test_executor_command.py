"""The command line on a running cluster."""

import json
import subprocess
import sys

from helpers.published_datasets import write_california
from regtta_bench.cli.reproduce import ReproduceOptions, run_experiments

QUICK = ("california", "--quick", "--source-seeds", "1", "--seeds", "1", "--device", "cpu")


class SilentListener:
    def on_start(self, runs, found):
        self.runs = runs

    def on_training(self, name, done, total):
        pass

    def on_run(self, spec, result):
        pass


def lines(folder):
    return sorted((folder / "runs.jsonl").read_text().splitlines())


def test_the_command_writes_the_same_runs_and_no_output_of_ray(cluster, tmp_path):
    write_california(tmp_path, rows=90)
    command = [sys.executable, "-c", "from regtta.cli import main; main()", "reproduce", *QUICK]
    done = subprocess.run(
        [*command, "--data", ".", "--out", "on-ray", "--ray", cluster],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    alone = SilentListener()
    options = ReproduceOptions(
        names=("california",),
        data=tmp_path,
        out=tmp_path / "alone",
        source_seeds=1,
        seeds=1,
        device="cpu",
        quick=True,
    )
    run_experiments(options, alone)
    assert lines(tmp_path / "on-ray") == lines(tmp_path / "alone")
    assert json.loads(lines(tmp_path / "on-ray")[0])["result"]["device"] == "cpu"
    told = done.stderr.splitlines()
    assert told[0] == f"{alone.runs} runs to make, 0 found."
    assert all(line.startswith("training") or " runs" in line for line in told), done.stderr
    assert "ray" not in done.stdout.replace("on-ray", "").lower()
