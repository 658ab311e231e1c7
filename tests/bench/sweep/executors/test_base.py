import itertools
from collections import deque

import pytest

from helpers.sweeps import RecordingListener, make_specs
from regtta_bench.stress.stress_settings import STRESS_SETTINGS
from regtta_bench.stress.stress_specs import StressPlan
from regtta_bench.sweep.executors.base import (
    PrepareTask,
    RunTask,
    all_models_small,
    execute_on_pool,
    group_by_source,
    worker_threads,
)


class FakePool:
    """Pool that executes one task at every other call of ``poll``, in submission order or the reverse."""

    def __init__(self, first=True):
        self.submitted, self.done, self.progress, self.first, self.calls = deque(), [], [], first, 0

    def submit(self, task):
        self.submitted.append(task)

    def poll(self):
        self.calls += 1
        if self.calls % 2:
            return None
        task = self.submitted.popleft() if self.first else self.submitted.pop()
        self.done.append(task)
        if isinstance(task, PrepareTask):
            self.progress.append((task.source.name, 1, 1))
        return task, {"made": len(self.done)}

    def training_progress(self):
        progress, self.progress = self.progress, []
        return progress


@pytest.mark.parametrize("first", [True, False])
def test_every_run_is_executed_once_after_its_source_model(first):
    pool, listener = FakePool(first), RecordingListener()
    made = [spec for spec, _ in execute_on_pool(pool, make_specs(), listener)]
    assert sorted(map(repr, made)) == sorted(map(repr, make_specs()))
    for index, task in enumerate(pool.done):
        if isinstance(task, RunTask):
            assert task.source in [done.source for done in pool.done[:index] if isinstance(done, PrepareTask)]
    assert [progress[0] for progress in listener.trained] == [
        t.source.name for t in pool.done if isinstance(t, PrepareTask)
    ]


def test_a_prepare_task_has_all_runs_on_its_source_model():
    pool = FakePool()
    list(execute_on_pool(pool, make_specs(), RecordingListener()))
    prepare = [task for task in pool.done if isinstance(task, PrepareTask)]
    assert [len(task.specs) for task in prepare] == [len(make_specs()) // 2] * 2


def test_each_run_has_its_own_result():
    pool = FakePool()
    for spec, result in execute_on_pool(pool, make_specs(1), RecordingListener()):
        assert pool.done[result["made"] - 1] == RunTask(spec)


def test_tasks_call_the_worker():
    class Worker:
        def run(self, spec):
            return {"ran": spec}

        def prepare(self, specs):
            self.readied = specs

    worker, one, *_ = Worker(), *make_specs(1)
    assert RunTask(one).execute(worker) == {"ran": one}
    assert PrepareTask((one,)).execute(worker) == {}
    assert worker.readied == (one,)
    assert PrepareTask((one,)).source == RunTask(one).source == one.source


def test_runs_are_grouped_by_source_model_and_target():
    plan = StressPlan(
        STRESS_SETTINGS["demo"], source_models=2, kinds=("iid", "sorted"), method_names=("ssa",), gate_batches=1
    )
    mixed = plan.runs()[::2] + plan.runs()[1::2]
    groups = group_by_source(mixed)
    assert [{spec.source.seed for spec in group} for group in groups] == [{0}, {1}]
    assert sorted(map(repr, itertools.chain(*groups))) == sorted(map(repr, mixed))
    for group in groups:
        targets = [target for target, _ in itertools.groupby(group, key=lambda spec: spec.target)]
        assert len(targets) == len(set(targets))


def test_small_models_use_one_thread_and_large_ones_all_cores():
    large = StressPlan(STRESS_SETTINGS["svhn-subset"], source_models=1, kinds=("iid",), method_names=("ssa",)).runs()
    assert (all_models_small(make_specs()), all_models_small([*make_specs(), *large])) == (True, False)
    assert (worker_threads(make_specs(), 8), worker_threads(large, 8), worker_threads(large, 0)) == (1, 8, 1)
