"""Processes of their own, which find regtta where this one does."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(arguments: Sequence[str]) -> str:
    """What a new Python prints that is called with ``arguments``; an error where it fails."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    return subprocess.check_output([sys.executable, *arguments], env=os.environ | {"PYTHONPATH": paths}, text=True)
