import pytest

import regtta
from benchmarks.step_calls import Call, count_file_changes, step_calls


def test_changes_are_counted_between_neighbours():
    calls = [Call(file, "f", 1) for file in ("a", "a", "b", "b", "a")]
    assert count_file_changes(calls) == 2
    assert count_file_changes([]) == 0


@pytest.mark.parametrize("images", [False, True], ids=["table", "images"])
def test_a_default_step_of_ssa_changes_files_at_most_twenty_times(images):
    calls = step_calls(regtta.SSA(k=4), images=images)
    assert 10 < count_file_changes(calls) <= 20


def test_a_plain_step_in_one_process_runs_no_code_of_execution_modes_processes_or_locks():
    calls = step_calls(regtta.SSA(k=4))
    assert not [call for call in calls if call.file.startswith("execution/")]
    assert {"adapter.py", "engine/stream.py", "engine/learner.py", "guards/chain.py"} <= {call.file for call in calls}
