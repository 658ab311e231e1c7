"""Python subprocesses that import regtta from this checkout."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT = 300  # seconds; a process may wait for another that has failed


def run_python(arguments: Sequence[str]) -> str:
    """Return the output of ``python *arguments``; raises an error if it fails.

    Example:
        >>> run_python(["-c", "print(6 * 7)"]).strip()
        '42'
    """
    return run_python_processes([arguments])[0]


def run_python_processes(calls: Sequence[Sequence[str]]) -> list[str]:
    """Return the outputs of concurrent processes; if one fails, ends all and raises an error."""
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
            printed = [process.communicate(timeout=TIMEOUT)[0] for process in running]
        finally:
            for process in running:
                process.kill()  # has no effect on a process that has ended
    for process in running:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return printed
