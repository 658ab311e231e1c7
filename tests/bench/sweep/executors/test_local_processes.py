import dataclasses
import multiprocessing
import os
import signal

import pytest

from helpers.sweeps import TRAININGS, RecordingListener, make_specs, read_results, with_empty_models_folder
from regtta.errors import MissingFileError, RegttaError
from regtta_bench.data.loading import DataLocation
from regtta_bench.sweep.executors.local import ProcessExecutor
from regtta_bench.sweep.run_sweep import run_missing
from regtta_bench.sweep.store import RunStore


def test_several_processes_give_the_same_numbers_and_train_no_model_twice(california_config, tmp_path):
    one, several = tmp_path / "one.jsonl", tmp_path / "several.jsonl"
    run_missing(make_specs(), RunStore(one), california_config, RecordingListener())
    listener = RecordingListener()
    run_missing(
        make_specs(),
        RunStore(several),
        with_empty_models_folder(california_config),
        listener,
        executor=ProcessExecutor(2),
    )
    assert read_results(one) == read_results(several)
    assert sorted(listener.trained) == TRAININGS
    assert len(listener.completed) == len(make_specs())


def test_an_error_in_a_process_is_raised(california_config, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    nowhere = dataclasses.replace(california_config, place=DataLocation(empty))
    with pytest.raises(MissingFileError, match="California Housing is not in"):
        run_missing(
            make_specs(), RunStore(tmp_path / "runs.jsonl"), nowhere, RecordingListener(), executor=ProcessExecutor(2)
        )


def test_closing_a_sweep_early_leaves_no_process(california_config):
    before = set(multiprocessing.active_children())
    made = ProcessExecutor(2).execute(make_specs(), california_config, RecordingListener())
    next(made)
    assert set(multiprocessing.active_children()) - before
    made.close()
    assert not set(multiprocessing.active_children()) - before


def test_a_dead_process_raises_instead_of_hanging(california_config, tmp_path):
    class KillingListener(RecordingListener):
        def on_run(self, spec, result):
            super().on_run(spec, result)
            if len(self.completed) == 1:
                workers = [child for child in multiprocessing.active_children() if "Spawn" in type(child).__name__]
                newest = max(child.pid for child in workers)
                os.kill(newest, signal.SIGKILL)

    with pytest.raises(RegttaError, match="All completed runs are saved: resume with fewer --jobs"):
        run_missing(
            make_specs(seeds=3),
            RunStore(tmp_path / "runs.jsonl"),
            california_config,
            KillingListener(),
            executor=ProcessExecutor(2),
        )
    assert read_results(tmp_path / "runs.jsonl")
