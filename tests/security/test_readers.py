"""Random bytes and damaged files: a reader returns a value or raises a clear error, and nothing else."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regtta.errors import RegttaError
from security.file_builders import write
from security.mutations import damaged_files
from security.readers import READERS

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries about what they read
SETTINGS = settings(
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
    @SETTINGS
    @given(st.binary(max_size=600))
    def check(raw: bytes) -> None:
        read_or_refuse(name, raw, tmp_path)

    check()


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path):
    @settings(SETTINGS, max_examples=80)
    @given(damaged_files(READERS[name].make_valid()))
    def check(raw: bytes) -> None:
        read_or_refuse(name, raw, tmp_path)

    check()
