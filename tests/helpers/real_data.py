"""Folder of the real data sets, and the mark that skips tests without it."""

import os
from pathlib import Path

import pytest

DEFAULT_FOLDER = Path(__file__).parent.parent.parent / "shared" / "data"
FOLDER = Path(os.environ.get("REGTTA_DATA") or DEFAULT_FOLDER)

needs_real_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no real data: REGTTA_DATA is not set and there is no {DEFAULT_FOLDER}"
)
