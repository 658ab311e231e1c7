import dataclasses
import json
import multiprocessing
import os
import signal

import pytest
import torch

from experiments.datasets.published import write_california
from regtta.errors import MissingFileError, ModelMismatchError, RegttaError
from regtta.experiments.reproduce import sweep as module
from regtta.experiments.reproduce.experiments import experiment
from regtta.experiments.reproduce.loading import Place
from regtta.experiments.reproduce.specs import QUICK, Plan
from regtta.experiments.reproduce.sweep import sweep
from regtta.experiments.reproduce.workshop import Tools
from regtta.experiments.store import RunStore


class Remembering:
    def __init__(self, stop_after=None):
        self.stop_after, self.made, self.told, self.trained = stop_after, [], None, []

    def begun(self, runs, found):
        self.told = (runs, found)

    def training(self, name, done, total):
        self.trained.append((name, done, total))

    def ran(self, spec, result):
        self.made.append(spec)
        if len(self.made) == self.stop_after:
            raise KeyboardInterrupt


@pytest.fixture
def tools(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write_california(data, rows=120)
    return Tools(Place(data), tmp_path / "models")


def specs(sources=2, seeds=1):
    return Plan(source_seeds=sources, seeds=seeds, scale=QUICK).all_runs(experiment("california").layouts({})[:1])


def results(path):
    return {line["key"]: line["result"] for line in map(json.loads, path.read_text().splitlines())}


def test_a_stopped_sweep_goes_on_where_it_was_and_ends_as_one_never_stopped(tools, tmp_path):
    stopped, whole = tmp_path / "stopped.jsonl", tmp_path / "whole.jsonl"
    with pytest.raises(KeyboardInterrupt):
        sweep(specs(), RunStore(stopped), tools, Remembering(stop_after=7))
    assert len(results(stopped)) == 7
    rest = Remembering()
    sweep(specs(), RunStore(stopped), tools, rest)
    assert rest.told == (len(specs()) - 7, 7)
    sweep(specs(), RunStore(whole), dataclasses.replace(tools, models=tmp_path / "others"), Remembering())
    assert results(stopped) == results(whole)  # on the CPU, bit for bit, source models trained anew


def test_several_processes_give_the_same_numbers_and_train_no_model_twice(tools, tmp_path):
    one, several = tmp_path / "one.jsonl", tmp_path / "several.jsonl"
    sweep(specs(), RunStore(one), tools, Remembering())
    listener = Remembering()
    sweep(specs(), RunStore(several), dataclasses.replace(tools, models=tmp_path / "others"), listener, jobs=2)
    assert results(one) == results(several)
    assert sorted(listener.trained) == [("california-mlp-regression-0", 1, 1), ("california-mlp-regression-1", 1, 1)]
    assert len(listener.made) == len(specs())


def test_the_threads_are_put_back(tools, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sweep(specs(1), RunStore(tmp_path / "runs.jsonl"), tools, Remembering())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_process_ends_the_sweep_with_its_own_words(tools, tmp_path):
    nowhere = dataclasses.replace(tools, place=Place(tmp_path / "nowhere"))
    with pytest.raises(MissingFileError, match="California Housing is not in"):
        sweep(specs(), RunStore(tmp_path / "runs.jsonl"), nowhere, Remembering(), jobs=2)


def test_who_leaves_a_sweep_early_leaves_no_process_behind(tools):
    before = set(multiprocessing.active_children())
    made = module._in_processes(specs(), tools, Remembering(), jobs=2)
    next(made)
    assert set(multiprocessing.active_children()) - before
    made.close()
    assert not set(multiprocessing.active_children()) - before


def test_a_process_that_dies_is_an_error_and_no_hang(tools, tmp_path):
    class Killing(Remembering):
        def ran(self, spec, result):
            super().ran(spec, result)
            if len(self.made) == 1:
                workers = [child for child in multiprocessing.active_children() if "Spawn" in type(child).__name__]
                newest = max(child.pid for child in workers)
                os.kill(newest, signal.SIGKILL)

    with pytest.raises(RegttaError, match="All runs so far are kept: start again, with fewer --jobs"):
        sweep(specs(seeds=3), RunStore(tmp_path / "runs.jsonl"), tools, Killing(), jobs=2)
    assert results(tmp_path / "runs.jsonl")


def test_two_trainings_of_one_model_are_never_mixed(tools, tmp_path):
    path = tmp_path / "runs.jsonl"
    every = specs(1)
    sweep(every[:3], RunStore(path), tools, Remembering())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["result"]["source_fingerprint"] = "of another training"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ModelMismatchError, match="runs on another training of california-mlp-regression-0"):
        sweep(every, RunStore(path), tools, Remembering())
    assert len(results(path)) == 3


def test_nothing_is_done_where_nothing_is_missing(tools, tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    sweep(specs(1), store, tools, Remembering())
    again = Remembering()
    sweep(specs(1), store, dataclasses.replace(tools, place=Place(tmp_path / "gone")), again)
    assert (again.told, again.made) == ((0, len(specs(1))), [])
