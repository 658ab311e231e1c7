"""Every target of the fuzzer for a few hundred runs, in one process; the long runs are made by hand."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from security.readers import READERS

RUNS = 300
SCRIPT = Path(__file__).parent / "fuzz_readers.py"
STATES = Path(__file__).parent / "fuzz_states.py"
pytestmark = pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed: pip install regtta[fuzz]"
)


def fuzz(*arguments: str, folder: Path, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def test_a_few_hundred_runs_of_every_target(tmp_path: Path):
    runs = RUNS * len(READERS)
    # libFuzzer's own limit looks at the peak of the process, which Linux hands down from the one that started it: the
    # whole suite. What readers take is measured in tests/security.
    run = fuzz("--target", "every", f"-atheris_runs={runs}", "-seed=1", "-rss_limit_mb=0", folder=tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    assert f"Done {runs} in" in run.stderr, run.stderr[-3000:]


def test_a_few_hundred_changed_states(tmp_path: Path):
    run = fuzz(f"-atheris_runs={2 * RUNS}", "-seed=1", "-rss_limit_mb=0", folder=tmp_path, script=STATES)
    assert run.returncode == 0, run.stderr[-3000:]
    assert f"Done {2 * RUNS} in" in run.stderr, run.stderr[-3000:]


def test_an_unknown_target_is_told_what_there_is(tmp_path: Path):
    run = fuzz("--target", "nothing", folder=tmp_path)
    assert run.returncode == 1
    assert "weights, statistics" in run.stderr
