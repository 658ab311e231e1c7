import json
import logging

import pytest

from regtta.errors import FileError, InvalidFileError
from regtta_bench.sweep.store import RunStore, compute_key

SPEC = {"data": "california", "method": {"type": "SSA", "k": 10}, "seed": 0}


def test_a_key_depends_on_values_but_not_on_order():
    assert compute_key(SPEC) == compute_key(dict(reversed(SPEC.items())))
    assert compute_key(SPEC) != compute_key(SPEC | {"seed": 1})
    assert compute_key(SPEC) != compute_key(SPEC | {"method": {"type": "SSA", "k": 11}})
    with pytest.raises(ValueError, match="JSON compliant"):
        compute_key({"lr": float("nan")})


def test_stored_runs_are_found(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    assert SPEC not in store
    store.add(SPEC, {"r2": 0.5})
    store.add(SPEC | {"seed": 1}, {"r2": 0.6})
    again = RunStore(tmp_path / "runs.jsonl")
    assert SPEC in again
    assert SPEC | {"seed": 2} not in again
    assert [record["result"]["r2"] for record in again] == [0.5, 0.6]
    assert next(iter(again))["specification"] == SPEC


def test_truncation_anywhere_in_the_last_line_loses_only_that_run(tmp_path, caplog):
    path = tmp_path / "runs.jsonl"
    store = RunStore(path)
    store.add(SPEC, {"r2": 0.5})
    first = path.read_bytes()
    store.add(SPEC | {"seed": 1}, {"r2": 0.6})
    whole = path.read_bytes()
    for length in range(len(first), len(whole) - 1):
        path.write_bytes(whole[:length])
        with caplog.at_level(logging.WARNING, "regtta"):
            cut = RunStore(path)
        assert SPEC in cut
        assert SPEC | {"seed": 1} not in cut
        cut.add(SPEC | {"seed": 1}, {"r2": 0.6})
        assert path.read_bytes() == whole
    assert "ends in an incomplete line" in caplog.text


def test_invalid_files_raise(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(InvalidFileError, match="line 1, is not a record of a run"):
        RunStore(path)
    path.write_text("what\n" + json.dumps({"key": 1}) + "\n")
    with pytest.raises(InvalidFileError, match="line 1, is not JSON"):
        RunStore(path)
    store = RunStore(tmp_path / "absent" / "runs.jsonl")
    with pytest.raises(FileError, match="Could not write"):
        store.add(SPEC, {})
