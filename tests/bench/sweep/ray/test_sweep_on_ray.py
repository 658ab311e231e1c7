import os
import platform
import time
from pathlib import Path

import pytest
import ray

from helpers.failing_workers import Elsewhere, made_up
from helpers.sweeps import TRAININGS, Remembering, results, specs, with_other_models
from regtta.errors import BatchError, MissingFileError, RegttaError
from regtta_bench.sweep.executors.ray.executor import RayExecutor
from regtta_bench.sweep.run_sweep import run_missing
from regtta_bench.sweep.store import RunStore

pytestmark = pytest.marker.usefixtures("cluster")


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs.jsonl"


def swept(wanted, runs, kit, jobs=None, stop_after=None):
    listener = Remembering(stop_after)
    run_missing(wanted, RunStore(runs), kit, listener, executor=RayExecutor(jobs))
    return listener


# --- as in one process ---------------------------------------------------------------------------


def test_the_lines_are_those_of_one_process_and_no_model_is_trained_twice(california_tools, tmp_path, runs):
    alone = tmp_path / "alone.jsonl"
    run_missing(specs(), RunStore(alone), california_tools, Remembering())
    RayExecutor().check(specs(), california_tools)
    listener = swept(specs(), runs, with_other_models(california_tools))
    assert results(runs) == results(alone)
    assert sorted(listener.trained) == TRAININGS
    assert sorted(map(repr, listener.made)) == sorted(map(repr, specs()))


def test_a_stopped_sweep_goes_on_where_it_was_on_the_models_it_had(kit, runs):
    with pytest.raises(KeyboardInterrupt):
        swept(made_up(1, 12), runs, kit, stop_after=3)
    assert len(results(runs)) == 3
    rest = swept(made_up(1, 12), runs, kit)
    assert (rest.told, rest.trained) == ((9, 3), [])
    assert sorted(result["number"] for result in results(runs).values()) == list(range(12))


def test_who_leaves_a_sweep_early_leaves_nothing_running(kit):
    wanted = made_up(1, 4)
    for spec in wanted[1:]:
        kit.note(f"{spec.name}.sleeps")
    made = RayExecutor().execute(wanted, kit, Remembering())
    assert next(made)[0] == wanted[0]
    made.close()
    until = time.monotonic() + 60
    while ray.available_resources().get("CPU") != 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == 2
    assert not list(kit.models.glob(".sweep*"))


@pytest.marker.parametrize(
    ("note", "kind", "said"),
    [
        ("fails", BatchError, r"source0-1 cannot be read\."),
        ("lacks-a-file", MissingFileError, rf"On {platform.node()}: source0-1 has no file\."),
        ("has-a-bug", ZeroDivisionError, "source0-1"),
    ],
)
def test_what_a_run_raises_ends_the_sweep_with_its_own_words_and_is_not_tried_again(kit, runs, note, kind, said):
    kit.note(f"source0-1.{note}")
    with pytest.raises(kind, match=f"^{said}$"):
        swept(made_up(1, 3), runs, kit, jobs=1)
    assert kit.done("source0-1") == 1
    assert len(results(runs)) == 1


# --- lost workers --------------------------------------------------------------------------------


def test_what_lost_workers_left_is_made_by_others(kit, runs, caplog):
    kit.note("source1.dies-once")
    kit.note("source0-2.dies-once")
    listener = swept(made_up(2, 4), runs, kit)
    assert sorted((r["number"]) for r in results(runs).values()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(listener.made) == 8
    on_start = {spec.name: kit.done(spec.name) for spec in made_up(2, 4)}
    assert on_start == {spec.name: 1 for spec in made_up(2, 4)} | {"source0-2": 2}
    assert (kit.done("source0"), kit.done("source1")) == (1, 2)
    assert "lost during the training of source1 (WorkerCrashedError); the task is retried on another" in caplog.text
    assert "lost during a run on source0 (WorkerCrashedError)" in caplog.text


def test_a_run_that_kills_every_worker_ends_the_sweep_and_all_others_are_kept(kit, runs):
    kit.note("source0-3.dies")
    with pytest.raises(RegttaError, match="3 workers were lost .* a run on source0 .*All completed runs are saved"):
        swept(made_up(1, 4), runs, kit, jobs=1)
    assert kit.done("source0-3") == 3
    assert sorted(result["number"] for result in results(runs).values()) == [0, 1, 2]


@pytest.marker.parametrize("call", ["wait", "get"])
def test_a_cluster_that_is_gone_is_an_error_that_says_that_nothing_is_lost(kit, runs, monkeypatch, call):
    class Unplugging(Remembering):
        def on_run(self, spec, result):
            super().on_run(spec, result)
            monkeypatch.setattr(ray, call, gone)

    def gone(*_, **__):
        monkeypatch.undo()
        raise ConnectionError("the client has been disconnected")

    with pytest.raises(RegttaError, match="connection to the Ray cluster was lost .*All completed runs are saved"):
        run_missing(made_up(1, 4), RunStore(runs), kit, Unplugging(), executor=RayExecutor())
    assert len(results(runs)) == 1


# --- machines that share no disk -----------------------------------------------------------------


def test_source_models_reach_machines_with_other_disks_and_are_trained_once(kit, runs, tmp_path):
    away = Elsewhere(kit.notes, kit.models)
    listener = swept(made_up(2, 6), runs, away)
    assert sorted(listener.trained) == [("source0", 1, 2), ("source0", 2, 2), ("source1", 1, 2), ("source1", 2, 2)]
    kept = {path.name.partition("-")[0]: path.read_text() for path in kit.models.iterdir()}
    marks = {result["source_fingerprint"] for result in results(runs).values()}
    assert set(kept.values()) == marks
    assert sorted(kept) == ["source0", "source1"]
    assert not (tmp_path / "not-the-drivers").exists()
    # What was put aside for the sweep goes with it, as soon as a busy machine has come to that.
    put_aside = Path(os.environ["TMPDIR"])
    for _ in range(300):
        if not list(put_aside.glob("regtta*")):
            break
        time.sleep(0.2)
    assert list(put_aside.glob("regtta*")) == []
    # A later sweep works on the very same models.
    more = swept(made_up(2, 8), runs, away)
    assert more.trained == []
    assert {result["source_fingerprint"] for result in results(runs).values()} == marks


def test_who_takes_over_elsewhere_works_on_the_same_model(kit, runs):
    kit.note("source0-0.dies-once")
    swept(made_up(1, 3), runs, Elsewhere(kit.notes, kit.models))
    assert kit.done("source0") == 1
    assert len({result["source_fingerprint"] for result in results(runs).values()}) == 1
