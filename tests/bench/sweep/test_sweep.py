import dataclasses
import json

import pytest

from helpers.sweeps import Remembering, results, specs, with_other_models
from regtta.errors import ModelMismatchError
from regtta_bench.data.loading import Place
from regtta_bench.sweep.run_sweep import run_missing
from regtta_bench.sweep.store import RunStore


def test_a_stopped_sweep_goes_on_where_it_was_and_ends_as_one_never_stopped(california_tools, tmp_path):
    stopped, whole = tmp_path / "stopped.jsonl", tmp_path / "whole.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_missing(specs(), RunStore(stopped), california_tools, Remembering(stop_after=7))
    assert len(results(stopped)) == 7
    rest = Remembering()
    run_missing(specs(), RunStore(stopped), california_tools, rest)
    assert rest.told == (len(specs()) - 7, 7)
    run_missing(specs(), RunStore(whole), with_other_models(california_tools), Remembering())
    assert results(stopped) == results(whole)  # on the CPU, bit for bit, source models trained anew


def test_two_trainings_of_one_model_are_never_mixed(california_tools, tmp_path):
    path = tmp_path / "runs.jsonl"
    every = specs(1)
    run_missing(every[:3], RunStore(path), california_tools, Remembering())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["result"]["source_fingerprint"] = "of another training"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ModelMismatchError, match="runs on another training of california-mlp-regression-0"):
        run_missing(every, RunStore(path), california_tools, Remembering())
    assert len(results(path)) == 3


def test_nothing_is_done_where_nothing_is_missing(california_tools, tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    run_missing(specs(1), store, california_tools, Remembering())
    again = Remembering()
    run_missing(specs(1), store, dataclasses.replace(california_tools, place=Place(tmp_path / "gone")), again)
    assert (again.told, again.made) == ((0, len(specs(1))), [])


class Leaving:
    """A crew that makes one run, and notes that it was sent home."""

    def __init__(self):
        self.home = False

    def execute(self, specs, config, listener):
        try:
            yield specs[0], {"source_fingerprint": "of this training"}
            pytest.fail("the sweep was stopped")
        finally:
            self.home = True


def test_whoever_makes_the_runs_is_sent_home_when_the_sweep_is_stopped(california_tools, tmp_path):
    executor = Leaving()
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_missing(
            specs(1),
            RunStore(tmp_path / "runs.jsonl"),
            california_tools,
            Remembering(stop_after=1),
            executor=executor,
        )
    assert executor.home  # at once, and not when the traceback is gone
    assert stopped.value.__traceback__ is not None
