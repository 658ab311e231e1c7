import os
import signal

import pytest
from torch import distributed as dist

from helpers.process_groups import run_in_processes
from regtta.errors import BatchError, ProcessError
from regtta.execution.distributed import SINGLE_PROCESS, Communicator, make_communicator, sync_errors


def test_a_single_process_raises_its_errors_and_interrupts_unchanged():
    for error in (KeyError("a"), BatchError("b"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, sync_errors(SINGLE_PROCESS):
            raise error
        assert raised.value is error


def _raise_in(comm: Communicator, failing: set[int], error: Exception) -> str:
    try:
        with sync_errors(comm):
            if comm.rank in failing:
                raise error
    except Exception as raised:
        return f"{type(raised).__name__}: {raised} ({type(raised.__cause__).__name__})"
    return "went on"


def _run_rounds(group: dist.ProcessGroup) -> list[str]:
    comm = make_communicator(group)
    rounds = [
        _raise_in(comm, set(), KeyError()),
        _raise_in(comm, {2}, BatchError("Bad batch.")),
        _raise_in(comm, {1, 2}, ValueError("two\nlines")),
    ]
    if comm.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return [*rounds, _raise_in(comm, {1}, BatchError("Mine."))]


def test_an_error_in_one_process_is_raised_in_all(tmp_path):
    dead, first, second = run_in_processes(3, _run_rounds, tmp_path)
    assert dead is None
    assert first[:2] == [
        "went on",
        "PeerError: The processes work together, and process 2 failed: Bad batch. (NoneType)",
    ]
    assert second[:2] == ["went on", "BatchError: Bad batch. (NoneType)"]
    # If several processes fail, the error of the first is reported; the others have their own error as the cause.
    assert first[2] == "ValueError: two\nlines (NoneType)"
    assert second[2] == (
        "PeerError: The processes work together, and process 1 failed: ValueError: two lines (ValueError)"
    )
    # A process with an error of its own raises it even if the others cannot be reached.
    assert first[3] == "BatchError: Mine. (NoneType)"
    assert second[3].startswith(f"{ProcessError.__name__}: Another process of the group has ended")
