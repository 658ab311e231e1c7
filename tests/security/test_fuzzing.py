"""Random bytes, and damaged files: a reader gives a value or a clear error, and nothing else."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regtta.errors import RegttaError
from security.making import write
from security.mutating import damaged
from security.readers import READERS

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries about what they read
QUICKLY = settings(
    max_examples=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def read_or_refuse(name: str, raw: bytes, folder: Path) -> None:
    reader = READERS[name]
    write(folder / reader.file, raw)
    with contextlib.suppress(RegttaError):
        reader.read(folder / reader.file)


@pytest.mark.parametrize("name", READERS)
def test_random_bytes(name: str, tmp_path: Path):
    @QUICKLY
    @given(st.binary(max_size=600))
    def check(raw: bytes) -> None:
        read_or_refuse(name, raw, tmp_path)

    check()


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path):
    @settings(QUICKLY, max_examples=80)
    @given(damaged(READERS[name].whole()))
    def check(raw: bytes) -> None:
        read_or_refuse(name, raw, tmp_path)

    check()
