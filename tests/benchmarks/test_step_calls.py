import pytest

import regtta
from benchmarks.step_calls import Call, count_file_changes, step_calls


def test_file_changes_are_counted_between_consecutive_calls():
    calls = [Call(file, "f", 1) for file in ("a", "a", "b", "b", "a")]
    assert count_file_changes(calls) == 2
    assert count_file_changes([]) == 0


@pytest.mark.parametrize("images", [False, True], ids=["table", "images"])
def test_default_ssa_step_changes_files_at_most_twenty_times(images):
    calls = step_calls(regtta.SSA(k=4), images=images)
    assert 10 < count_file_changes(calls) <= 20


def test_plain_step_runs_no_code_of_the_execution_package():
    calls = step_calls(regtta.SSA(k=4))
    assert not [call for call in calls if call.file.startswith("execution/")]
    assert {"adapter.py", "engine/stream.py", "engine/learner.py", "guards/chain.py"} <= {call.file for call in calls}
