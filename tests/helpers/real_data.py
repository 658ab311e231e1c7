"""Where the tests find real data, and how they skip without it."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parent.parent.parent / "shared" / "data"
FOLDER = Path(os.environ.get("REGTTA_DATA") or BESIDE)

needs_real_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no real data: REGTTA_DATA is not set and there is no {BESIDE}"
)
