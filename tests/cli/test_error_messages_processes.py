"""Errors and warnings under torchrun are printed once, by the process concerned."""

import logging

import pytest

from regtta.cli import error_messages
from regtta.cli.error_messages import StderrWarningHandler


@pytest.fixture
def set_rank(monkeypatch: pytest.MonkeyPatch):
    """Return a function that gives this process a rank among two."""

    def set_rank(rank: int) -> None:
        for name, value in {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(value))

    monkeypatch.setattr(error_messages, "PRINT_GRACE_SECONDS", 0)
    return set_rank


def test_single_process_commands_are_rejected_under_torchrun(set_rank, regtta):
    set_rank(0)
    rejected = regtta("inspect", "stats.safetensors")
    message = "error: process 0: regtta inspect is for one process. Start it without torchrun.\n"
    assert (rejected.exit_code, rejected.stderr) == (2, message)
    set_rank(1)
    rejected = regtta("inspect", "stats.safetensors")
    assert (rejected.exit_code, rejected.output) == (2, "")


def test_usage_errors_are_printed_by_the_first_set_rank(set_rank, regtta):
    set_rank(0)
    first = regtta("collect", "--nonsense")
    assert first.exit_code == 2
    assert "No such option" in first.stderr
    set_rank(1)
    second = regtta("collect", "--nonsense")
    assert (second.exit_code, second.output) == (2, "")


def test_warnings_are_printed_by_the_first_set_rank(set_rank, capsys):
    record = logging.LogRecord("regtta", logging.WARNING, "", 0, "Mind the gap.", (), None)
    for rank in (0, 1):
        set_rank(rank)
        StderrWarningHandler().emit(record)
        assert capsys.readouterr().err == ("warning: Mind the gap.\n" if rank == 0 else "")
