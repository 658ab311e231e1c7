"""Tasks of a worker, executed in this process."""

import dataclasses
import platform

import pytest
import torch

from helpers.failing_workers import make_fake_specs
from regtta._version import __version__
from regtta.errors import MismatchError, MissingFileError
from regtta_bench.sweep.executors.base import PrepareTask, RunTask
from regtta_bench.sweep.executors.ray import tasks
from regtta_bench.sweep.executors.ray.tasks import SweepConfig, check_machine, execute_task, marker_file

ONE, TWO = make_fake_specs(1, 2)


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(tasks, "_process_state", None)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def sweep_config(worker_config):
    """Configuration of a sweep whose driver shares the disk."""
    with marker_file(worker_config.models) as marker:
        yield SweepConfig(worker_config, marker, threads=2)


class RecordingReporter:
    """Progress reporter that records its calls."""

    def __init__(self, actor):
        self.calls = []

    def __call__(self, *progress):
        self.calls.append(progress)

    def flush(self):
        self.calls.append("flush")


@pytest.fixture
def reporters(monkeypatch):
    made = []
    monkeypatch.setattr(tasks, "ProgressReporter", lambda actor: made.append(RecordingReporter(actor)) or made[-1])
    return made


def test_new_files_are_returned_and_progress_is_flushed(sweep_config, worker_config, reporters):
    output = execute_task(sweep_config, None, {}, PrepareTask((ONE, TWO)))
    (path,) = worker_config.models.glob("*.safetensors")
    assert output.new_files == {path.name: path.read_bytes()}
    assert (output.result, output.scratch_node) == ({}, None)
    assert reporters[0].calls == [("source0", 1, 2), ("source0", 2, 2), "flush"]
    assert torch.get_num_threads() == 2
    again = execute_task(sweep_config, None, {path.name: None}, RunTask(ONE))
    assert (again.result["source_fingerprint"], again.new_files) == (path.read_text(), {})


def test_a_process_reuses_its_worker_within_a_sweep(sweep_config, worker_config, reporters):
    for spec in (ONE, TWO):
        execute_task(sweep_config, None, {}, PrepareTask((spec,)))
    assert len(reporters) == 1
    with marker_file(worker_config.models) as marker:
        execute_task(dataclasses.replace(sweep_config, marker=marker), None, {}, RunTask(ONE))
    assert len(reporters) == 2


def test_missing_files_name_the_machine(sweep_config, worker_config, reporters):
    worker_config.set_flag("data-is-missing")
    with pytest.raises(MissingFileError, match=f"^On {platform.node()}: There is no data.$"):
        execute_task(sweep_config, None, {}, RunTask(ONE))
    with pytest.raises(MissingFileError, match=f"^On {platform.node()}: "):
        check_machine((worker_config, [ONE]), __version__)
    assert worker_config.count_started(ONE.name) == 0


def test_a_machine_with_another_version_executes_nothing(sweep_config, worker_config):
    with pytest.raises(MismatchError, match=f"has regtta {__version__}, but the sweep was started with 9.9"):
        execute_task(dataclasses.replace(sweep_config, version="9.9"), None, {}, RunTask(ONE))
    assert worker_config.count_started(ONE.name) == 0
