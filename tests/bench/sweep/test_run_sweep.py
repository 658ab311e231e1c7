import dataclasses
import json

import pytest

from helpers.sweeps import RecordingListener, make_specs, read_results, with_empty_models_folder
from regtta.errors import ModelMismatchError
from regtta_bench.data.loading import DataLocation
from regtta_bench.sweep.run_sweep import run_missing
from regtta_bench.sweep.store import RunStore


def test_a_resumed_sweep_equals_an_uninterrupted_one(california_config, tmp_path):
    stopped, whole = tmp_path / "stopped.jsonl", tmp_path / "whole.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_missing(make_specs(), RunStore(stopped), california_config, RecordingListener(stop_after=7))
    assert len(read_results(stopped)) == 7
    rest = RecordingListener()
    run_missing(make_specs(), RunStore(stopped), california_config, rest)
    assert rest.counts == (len(make_specs()) - 7, 7)
    run_missing(make_specs(), RunStore(whole), with_empty_models_folder(california_config), RecordingListener())
    assert read_results(stopped) == read_results(whole)  # on the CPU, bit for bit, source models trained anew


def test_different_trainings_of_one_model_are_never_mixed(california_config, tmp_path):
    path = tmp_path / "runs.jsonl"
    every = make_specs(1)
    run_missing(every[:3], RunStore(path), california_config, RecordingListener())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["result"]["source_fingerprint"] = "of another training"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ModelMismatchError, match="runs on another training of california-mlp-regression-0"):
        run_missing(every, RunStore(path), california_config, RecordingListener())
    assert len(read_results(path)) == 3


def test_a_complete_sweep_runs_nothing(california_config, tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    run_missing(make_specs(1), store, california_config, RecordingListener())
    again = RecordingListener()
    run_missing(
        make_specs(1), store, dataclasses.replace(california_config, place=DataLocation(tmp_path / "gone")), again
    )
    assert (again.counts, again.completed) == ((0, len(make_specs(1))), [])


class FakeExecutor:
    """Executor that completes one run and records that it was closed."""

    def __init__(self):
        self.closed = False

    def execute(self, specs, config, listener):
        try:
            yield specs[0], {"source_fingerprint": "of this training"}
            pytest.fail("the sweep was stopped")
        finally:
            self.closed = True


def test_the_executor_is_closed_when_the_sweep_is_stopped(california_config, tmp_path):
    executor = FakeExecutor()
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_missing(
            make_specs(1),
            RunStore(tmp_path / "runs.jsonl"),
            california_config,
            RecordingListener(stop_after=1),
            executor=executor,
        )
    assert executor.closed  # immediately, not when the traceback is collected
    assert stopped.value.__traceback__ is not None
