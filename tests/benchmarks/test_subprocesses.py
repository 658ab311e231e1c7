import subprocess

import pytest

from benchmarks.speed import subprocesses
from benchmarks.speed.subprocesses import ROOT, run_python, run_python_processes


def test_subprocess_imports_regtta_from_this_checkout():
    assert run_python(["-c", "import regtta; print(regtta.__file__)"]).startswith(str(ROOT / "src" / "regtta"))


def test_processes_run_concurrently(tmp_path):
    wait = (
        "import pathlib, sys, time; own, other = map(pathlib.Path, sys.argv[1:]); own.touch()\n"
        "while not other.exists(): time.sleep(0.01)\n"
        "print(own.name)"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert run_python_processes([["-c", wait, one, two], ["-c", wait, two, one]]) == ["one\n", "two\n"]


def test_failing_process_raises_an_error():
    with pytest.raises(subprocess.CalledProcessError):
        run_python(["-c", "raise SystemExit(3)"])


def test_process_is_ended_after_the_timeout(monkeypatch):
    monkeypatch.setattr(subprocesses, "TIMEOUT", 0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        run_python(["-c", "import time; time.sleep(60)"])
