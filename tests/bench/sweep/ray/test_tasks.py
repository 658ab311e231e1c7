"""What a worker does, done in this process."""

import dataclasses
import platform

import pytest
import torch

from helpers.failing_workers import made_up
from regtta._version import __version__
from regtta.errors import MismatchError, MissingFileError
from regtta_bench.sweep.executors.base import PrepareTask, RunTask
from regtta_bench.sweep.executors.ray import tasks
from regtta_bench.sweep.executors.ray.tasks import SweepConfig, check_machine, execute_task, marker_file

ONE, TWO = made_up(1, 2)


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(tasks, "_process_state", None)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def sweep_config(kit):
    """Of a sweep whose driver shares the disk."""
    with marker_file(kit.models) as marker:
        yield SweepConfig(kit, marker, threads=2)


class Silence:
    """A pen that nobody reads after."""

    def __init__(self, board):
        self.told = []

    def __call__(self, *news):
        self.told.append(news)

    def flush(self):
        self.told.append("put down")


@pytest.fixture
def pens(monkeypatch):
    made = []
    monkeypatch.setattr(tasks, "ProgressReporter", lambda board: made.append(Silence(board)) or made[-1])
    return made


def test_what_the_driver_does_not_know_comes_back_and_all_is_told_before(sweep_config, kit, pens):
    output = execute_task(sweep_config, None, {}, PrepareTask((ONE, TWO)))
    (path,) = kit.models.glob("*.safetensors")
    assert output.made == {path.name: path.read_bytes()}
    assert (output.result, output.scratch_node) == ({}, None)
    assert pens[0].told == [("source0", 1, 2), ("source0", 2, 2), "put down"]
    assert torch.get_num_threads() == 2
    again = execute_task(sweep_config, None, {path.name: None}, RunTask(ONE))
    assert (again.result["source_fingerprint"], again.made) == (path.read_text(), {})


def test_a_process_keeps_its_worker_from_task_to_task_and_has_a_new_one_for_another_sweep(sweep_config, kit, pens):
    for spec in (ONE, TWO):
        execute_task(sweep_config, None, {}, PrepareTask((spec,)))
    assert len(pens) == 1
    with marker_file(kit.models) as marker:
        execute_task(dataclasses.replace(sweep_config, marker=marker), None, {}, RunTask(ONE))
    assert len(pens) == 2


def test_what_is_missing_on_a_machine_names_it(sweep_config, kit, pens):
    kit.note("data-is-missing")
    with pytest.raises(MissingFileError, match=f"^On {platform.node()}: There is no data.$"):
        execute_task(sweep_config, None, {}, RunTask(ONE))
    with pytest.raises(MissingFileError, match=f"^On {platform.node()}: "):
        check_machine((kit, [ONE]), __version__)
    assert kit.done(ONE.name) == 0


def test_a_machine_that_joins_late_with_another_version_does_nothing(sweep_config, kit):
    with pytest.raises(MismatchError, match=f"has regtta {__version__}, but the sweep was started with 9.9"):
        execute_task(dataclasses.replace(sweep_config, version="9.9"), None, {}, RunTask(ONE))
    assert kit.done(ONE.name) == 0
