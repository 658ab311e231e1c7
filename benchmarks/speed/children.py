"""Processes of their own, which find regtta where this one does."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 300  # seconds: a process that waits for one that failed would wait for ever


def run_python(arguments: Sequence[str]) -> str:
    """What a new Python prints that is called with ``arguments``; an error where it fails.

    Example:
        >>> run_python(["-c", "print(6 * 7)"]).strip()
        '42'
    """
    return run_pythons([arguments])[0]


def run_pythons(calls: Sequence[Sequence[str]]) -> list[str]:
    """What several print that run at the same time; an error where one fails, and then none is left running."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | {"PYTHONPATH": paths}
    with ExitStack() as opened:
        running = [
            opened.enter_context(
                subprocess.Popen([sys.executable, *call], env=environment, text=True, stdout=subprocess.PIPE)
            )
            for call in calls
        ]
        try:
            printed = [process.communicate(timeout=LONGEST)[0] for process in running]
        finally:
            for process in running:
                process.kill()  # does nothing to one that has ended
    for process in running:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return printed
