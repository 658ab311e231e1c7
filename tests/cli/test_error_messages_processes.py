"""What is said on the terminal where torchrun has started several processes: once, and by whom it concerns."""

import logging

import pytest

from regtta.cli import error_messages as complaints
from regtta.cli.error_messages import StderrWarningHandler


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch):
    """Makes this process one of two."""

    def be(rank: int) -> None:
        for name, value in {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(value))

    monkeypatch.setattr(complaints, "PRINT_GRACE_SECONDS", 0)
    return be


def test_a_command_for_one_process_is_refused_to_several(process, regtta):
    process(0)
    refused = regtta("inspect", "stats.safetensors")
    told = "error: process 0: regtta inspect is for one process. Start it without torchrun.\n"
    assert (refused.exit_code, refused.stderr) == (2, told)
    process(1)
    refused = regtta("inspect", "stats.safetensors")
    assert (refused.exit_code, refused.output) == (2, "")


def test_a_slip_in_the_options_is_told_by_the_first(process, regtta):
    process(0)
    first = regtta("collect", "--nonsense")
    assert first.exit_code == 2
    assert "No such option" in first.stderr
    process(1)
    second = regtta("collect", "--nonsense")
    assert (second.exit_code, second.output) == (2, "")


def test_warnings_are_told_by_the_first(process, capsys):
    record = logging.LogRecord("regtta", logging.WARNING, "", 0, "Mind the gap.", (), None)
    for rank in (0, 1):
        process(rank)
        StderrWarningHandler().emit(record)
        assert capsys.readouterr().err == ("warning: Mind the gap.\n" if rank == 0 else "")
