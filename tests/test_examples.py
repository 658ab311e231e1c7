"""Every example runs as a script, without a warning."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
# All examples run in one interpreter, which imports torch once. Warnings are errors from its start.
RUN = """
import contextlib, io, json, runpy, sys, traceback
outcomes = {}
for path in sys.argv[1:]:
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
    except BaseException:
        error = traceback.format_exc()
    outcomes[path] = (printed.getvalue(), error)
json.dump(outcomes, sys.stdout)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """Output and error of each example."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, *map(str, EXAMPLES)],
        check=False,
        cwd=tmp_path_factory.mktemp("examples"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_without_a_warning(path, outcomes):
    printed, error = outcomes[str(path)]
    assert not error, error
    assert printed.strip()


def test_there_are_examples():
    assert EXAMPLES
