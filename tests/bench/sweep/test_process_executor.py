import dataclasses
import multiprocessing
import os
import signal

import pytest

from helpers.preloaded_python import CONTEXT
from helpers.sweeps import TRAININGS, Remembering, results, specs, with_other_models
from regtta.errors import MissingFileError, RegttaError
from regtta_bench.data.loading import Place
from regtta_bench.sweep.executors.local import Processes
from regtta_bench.sweep.run_sweep import sweep
from regtta_bench.sweep.store import RunStore


def test_several_processes_give_the_same_numbers_and_train_no_model_twice(california_tools, tmp_path):
    one, several = tmp_path / "one.jsonl", tmp_path / "several.jsonl"
    sweep(specs(), RunStore(one), california_tools, Remembering())
    listener = Remembering()
    sweep(specs(), RunStore(several), with_other_models(california_tools), listener, crew=Processes(2))
    assert results(one) == results(several)
    assert sorted(listener.trained) == TRAININGS
    assert len(listener.made) == len(specs())


@pytest.fixture
def _preloaded(monkeypatch):
    """Start the workers from a server that has imported torch; the test above has them spawned, as users do."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: CONTEXT)


@pytest.mark.usefixtures("_preloaded")
def test_an_error_in_a_process_ends_the_sweep_with_its_own_words(california_tools, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    nowhere = dataclasses.replace(california_tools, place=Place(empty))
    with pytest.raises(MissingFileError, match="California Housing is not in"):
        sweep(specs(), RunStore(tmp_path / "runs.jsonl"), nowhere, Remembering(), crew=Processes(2))


@pytest.mark.usefixtures("_preloaded")
def test_who_leaves_a_sweep_early_leaves_no_process_behind(california_tools):
    before = set(multiprocessing.active_children())
    made = Processes(2).make(specs(), california_tools, Remembering())
    next(made)
    assert set(multiprocessing.active_children()) - before
    made.close()
    assert not set(multiprocessing.active_children()) - before


@pytest.mark.usefixtures("_preloaded")
def test_a_process_that_dies_is_an_error_and_no_hang(california_tools, tmp_path):
    class Killing(Remembering):
        def ran(self, spec, result):
            super().ran(spec, result)
            if len(self.made) == 1:
                workers = [child for child in multiprocessing.active_children() if "ForkServer" in type(child).__name__]
                newest = max(child.pid for child in workers)
                os.kill(newest, signal.SIGKILL)

    with pytest.raises(RegttaError, match="All completed runs are saved: resume with fewer --jobs"):
        sweep(specs(seeds=3), RunStore(tmp_path / "runs.jsonl"), california_tools, Killing(), crew=Processes(2))
    assert results(tmp_path / "runs.jsonl")
