import os
import signal

import pytest
from torch import distributed as dist

from helpers.process_groups import run_in_processes
from regtta.errors import BatchError, ProcessError
from regtta.execution.distributed import SINGLE_PROCESS, Communicator, make_communicator, sync_errors


def test_alone_an_error_is_itself_and_interruptions_pass():
    for error in (KeyError("a"), BatchError("b"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, sync_errors(SINGLE_PROCESS):
            raise error
        assert raised.value is error


def _raised(together: Communicator, failing: set[int], error: Exception) -> str:
    try:
        with sync_errors(together):
            if together.rank in failing:
                raise error
    except Exception as raised:
        return f"{type(raised).__name__}: {raised} ({type(raised.__cause__).__name__})"
    return "went on"


def _rounds(group: dist.ProcessGroup) -> list[str]:
    together = make_communicator(group)
    rounds = [
        _raised(together, set(), KeyError()),
        _raised(together, {2}, BatchError("Bad batch.")),
        _raised(together, {1, 2}, ValueError("two\nlines")),
    ]
    if together.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return [*rounds, _raised(together, {1}, BatchError("Mine."))]


def test_what_fails_in_one_fails_in_all(tmp_path):
    dead, first, second = run_in_processes(3, _rounds, tmp_path)
    assert dead is None
    assert first[:2] == [
        "went on",
        "PeerError: The processes work together, and process 2 failed: Bad batch. (NoneType)",
    ]
    assert second[:2] == ["went on", "BatchError: Bad batch. (NoneType)"]
    # Of several the first says what was wrong; the others keep their own error as the cause of theirs.
    assert first[2] == "ValueError: two\nlines (NoneType)"
    assert second[2] == (
        "PeerError: The processes work together, and process 1 failed: ValueError: two lines (ValueError)"
    )
    # A process that has an error of its own tells that, though the others can no longer be asked.
    assert first[3] == "BatchError: Mine. (NoneType)"
    assert second[3].startswith(f"{ProcessError.__name__}: Another process of the group has ended")
