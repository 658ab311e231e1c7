import subprocess

import pytest

from benchmarks.speed import subprocesses
from benchmarks.speed.subprocesses import ROOT, run_python, run_python_processes


def test_a_child_finds_this_regtta():
    assert run_python(["-c", "import regtta; print(regtta.__file__)"]).startswith(str(ROOT / "src" / "regtta"))


def test_several_run_at_the_same_time(tmp_path):
    wait = (
        "import pathlib, sys, time; own, other = map(pathlib.Path, sys.argv[1:]); own.touch()\n"
        "while not other.exists(): time.sleep(0.01)\n"
        "print(own.name)"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert run_python_processes([["-c", wait, one, two], ["-c", wait, two, one]]) == ["one\n", "two\n"]


def test_one_that_fails_is_an_error():
    with pytest.raises(subprocess.CalledProcessError):
        run_python(["-c", "raise SystemExit(3)"])


def test_one_that_waits_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr(subprocesses, "TIMEOUT", 0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        run_python(["-c", "import time; time.sleep(60)"])
