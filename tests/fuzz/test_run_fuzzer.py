"""A hundred runs of every fuzzing target, in one process; longer runs are started by hand."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fuzz.targets import TARGETS, parse_target

RUNS = 100 * len(TARGETS)
SCRIPT = Path(__file__).parent / "run_fuzzer.py"


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: pip install regtta[fuzz]")
def test_a_hundred_runs_of_every_target(tmp_path: Path):
    # libFuzzer's own limit applies to the peak of the process, which Linux inherits from its parent: the whole suite.
    # The memory of readers is measured in tests/security.
    options = ["--target", "every", f"-atheris_runs={RUNS}", "-seed=1", "-rss_limit_mb=0"]
    command = [sys.executable, str(SCRIPT), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    assert f"Done {RUNS} in" in run.stderr, run.stderr[-3000:]


def test_a_target_is_taken_out_of_the_arguments():
    assert parse_target(["run_fuzzer.py", "-seed=1", "--target", "weights", "-x"]) == (
        ["weights"],
        ["run_fuzzer.py", "-seed=1", "-x"],
    )
    assert parse_target(["run_fuzzer.py", "--target", "every"]) == (list(TARGETS), ["run_fuzzer.py"])


@pytest.mark.parametrize("arguments", [[], ["--target"], ["--target", "nothing"]])
def test_the_error_of_an_unknown_target_lists_all_targets(arguments: list[str]):
    with pytest.raises(SystemExit, match="weights, statistics.*, states"):
        parse_target(["run_fuzzer.py", *arguments])
