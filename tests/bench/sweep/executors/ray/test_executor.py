import os
import platform
import time
from pathlib import Path

import pytest
import ray

from helpers.failing_workers import SeparateDiskConfig, make_fake_specs
from helpers.sweeps import TRAININGS, RecordingListener, make_specs, read_results, with_empty_models_folder
from regtta.errors import BatchError, MissingFileError, RegttaError
from regtta_bench.sweep.executors.ray.executor import RayExecutor
from regtta_bench.sweep.run_sweep import run_missing
from regtta_bench.sweep.store import RunStore

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs.jsonl"


def run_on_ray(requested, runs, worker_config, jobs=None, stop_after=None):
    listener = RecordingListener(stop_after)
    run_missing(requested, RunStore(runs), worker_config, listener, executor=RayExecutor(jobs))
    return listener


# --- same results as in one process ---------------------------------------------------------------------------


def test_results_equal_those_of_one_process_and_models_train_once(california_config, tmp_path, runs):
    alone = tmp_path / "alone.jsonl"
    run_missing(make_specs(), RunStore(alone), california_config, RecordingListener())
    RayExecutor().check(make_specs(), california_config)
    listener = run_on_ray(make_specs(), runs, with_empty_models_folder(california_config))
    assert read_results(runs) == read_results(alone)
    assert sorted(listener.trained) == TRAININGS
    assert sorted(map(repr, listener.completed)) == sorted(map(repr, make_specs()))


def test_a_resumed_sweep_uses_the_same_models(worker_config, runs):
    with pytest.raises(KeyboardInterrupt):
        run_on_ray(make_fake_specs(1, 12), runs, worker_config, stop_after=3)
    assert len(read_results(runs)) == 3
    rest = run_on_ray(make_fake_specs(1, 12), runs, worker_config)
    assert (rest.counts, rest.trained) == ((9, 3), [])
    assert sorted(result["number"] for result in read_results(runs).values()) == list(range(12))


def test_closing_a_sweep_early_leaves_nothing_running(worker_config):
    requested = make_fake_specs(1, 4)
    for spec in requested[1:]:
        worker_config.set_flag(f"{spec.name}.sleeps")
    made = RayExecutor().execute(requested, worker_config, RecordingListener())
    assert next(made)[0] == requested[0]
    made.close()
    until = time.monotonic() + 60
    while ray.available_resources().get("CPU") != 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == 2
    assert not list(worker_config.models.glob(".sweep*"))


@pytest.mark.parametrize(
    ("flag", "error", "message"),
    [
        ("fails", BatchError, r"source0-1 cannot be read\."),
        ("lacks-a-file", MissingFileError, rf"On {platform.node()}: source0-1 has no file\."),
        ("has-a-bug", ZeroDivisionError, "source0-1"),
    ],
)
def test_errors_of_runs_are_raised_without_a_retry(worker_config, runs, flag, error, message):
    worker_config.set_flag(f"source0-1.{flag}")
    with pytest.raises(error, match=f"^{message}$"):
        run_on_ray(make_fake_specs(1, 3), runs, worker_config, jobs=1)
    assert worker_config.count_started("source0-1") == 1
    assert len(read_results(runs)) == 1


# --- lost workers --------------------------------------------------------------------------------


def test_tasks_of_lost_workers_are_retried(worker_config, runs, caplog):
    worker_config.set_flag("source1.dies-once")
    worker_config.set_flag("source0-2.dies-once")
    listener = run_on_ray(make_fake_specs(2, 4), runs, worker_config)
    assert sorted((r["number"]) for r in read_results(runs).values()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(listener.completed) == 8
    started = {spec.name: worker_config.count_started(spec.name) for spec in make_fake_specs(2, 4)}
    assert started == {spec.name: 1 for spec in make_fake_specs(2, 4)} | {"source0-2": 2}
    assert (worker_config.count_started("source0"), worker_config.count_started("source1")) == (1, 2)
    assert "lost during the training of source1 (WorkerCrashedError); the task is retried on another" in caplog.text
    assert "lost during a run on source0 (WorkerCrashedError)" in caplog.text


def test_a_run_that_kills_every_worker_ends_the_sweep_but_keeps_the_others(worker_config, runs):
    worker_config.set_flag("source0-3.dies")
    with pytest.raises(RegttaError, match="3 workers were lost .* a run on source0 .*All completed runs are saved"):
        run_on_ray(make_fake_specs(1, 4), runs, worker_config, jobs=1)
    assert worker_config.count_started("source0-3") == 3
    assert sorted(result["number"] for result in read_results(runs).values()) == [0, 1, 2]


@pytest.mark.parametrize("call", ["wait", "get"])
def test_a_lost_cluster_raises_and_keeps_the_runs(worker_config, runs, monkeypatch, call):
    class DisconnectingListener(RecordingListener):
        def on_run(self, spec, result):
            super().on_run(spec, result)
            monkeypatch.setattr(ray, call, gone)

    def gone(*_, **__):
        monkeypatch.undo()
        raise ConnectionError("the client has been disconnected")

    with pytest.raises(RegttaError, match="connection to the Ray cluster was lost .*All completed runs are saved"):
        run_missing(
            make_fake_specs(1, 4), RunStore(runs), worker_config, DisconnectingListener(), executor=RayExecutor()
        )
    assert len(read_results(runs)) == 1


# --- machines with separate disks -----------------------------------------------------------------


def test_source_models_are_sent_to_separate_disks_and_trained_once(worker_config, runs, tmp_path):
    separate = SeparateDiskConfig(worker_config.flags, worker_config.models)
    listener = run_on_ray(make_fake_specs(2, 6), runs, separate)
    assert sorted(listener.trained) == [("source0", 1, 2), ("source0", 2, 2), ("source1", 1, 2), ("source1", 2, 2)]
    models = {path.name.partition("-")[0]: path.read_text() for path in worker_config.models.iterdir()}
    fingerprints = {result["source_fingerprint"] for result in read_results(runs).values()}
    assert set(models.values()) == fingerprints
    assert sorted(models) == ["source0", "source1"]
    assert not (tmp_path / "not-the-drivers").exists()
    # Temporary folders are removed at the end of the sweep, though a busy machine may take a while.
    temporary = Path(os.environ["TMPDIR"])
    for _ in range(300):
        if not list(temporary.glob("regtta*")):
            break
        time.sleep(0.2)
    assert list(temporary.glob("regtta*")) == []
    # A later sweep uses the same models.
    more = run_on_ray(make_fake_specs(2, 8), runs, separate)
    assert more.trained == []
    assert {result["source_fingerprint"] for result in read_results(runs).values()} == fingerprints


def test_a_retried_task_on_a_separate_disk_uses_the_same_model(worker_config, runs):
    worker_config.set_flag("source0-0.dies-once")
    run_on_ray(make_fake_specs(1, 3), runs, SeparateDiskConfig(worker_config.flags, worker_config.models))
    assert worker_config.count_started("source0") == 1
    assert len({result["source_fingerprint"] for result in read_results(runs).values()}) == 1
