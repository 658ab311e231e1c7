from collections import deque

import pytest

from helpers.sweeps import Remembering, specs
from regtta_bench.sweep.executors.base import PrepareTask, RunTask, execute_on_pool


class Workers:
    """Does one task a call, the last given first or the first; nothing ends at every other call."""

    def __init__(self, first=True):
        self.given, self.done, self.news, self.first, self.calls = deque(), [], [], first, 0

    def submit(self, task):
        self.given.append(task)

    def poll(self):
        self.calls += 1
        if self.calls % 2:
            return None
        task = self.given.popleft() if self.first else self.given.pop()
        self.done.append(task)
        if isinstance(task, PrepareTask):
            self.news.append((task.source.name, 1, 1))
        return task, {"made": len(self.done)}

    def training_progress(self):
        news, self.news = self.news, []
        return news


@pytest.mark.parametrize("first", [True, False])
def test_every_run_is_made_once_and_after_its_source_model(first):
    pool, listener = Workers(first), Remembering()
    made = [spec for spec, _ in execute_on_pool(pool, specs(), listener)]
    assert sorted(map(repr, made)) == sorted(map(repr, specs()))
    for index, task in enumerate(pool.done):
        if isinstance(task, RunTask):
            assert task.source in [done.source for done in pool.done[:index] if isinstance(done, PrepareTask)]
    assert [news[0] for news in listener.trained] == [t.source.name for t in pool.done if isinstance(t, PrepareTask)]


def test_all_runs_on_a_source_model_are_known_to_who_readies_it():
    pool = Workers()
    list(execute_on_pool(pool, specs(), Remembering()))
    prepare = [task for task in pool.done if isinstance(task, PrepareTask)]
    assert [len(task.specs) for task in prepare] == [len(specs()) // 2] * 2


def test_what_came_of_a_run_is_its_own():
    pool = Workers()
    for spec, result in execute_on_pool(pool, specs(1), Remembering()):
        assert pool.done[result["made"] - 1] == RunTask(spec)


def test_a_task_asks_the_worker_for_what_it_is():
    class Worker:
        def run(self, spec):
            return {"ran": spec}

        def prepare(self, specs):
            self.readied = specs

    worker, one, *_ = Worker(), *specs(1)
    assert RunTask(one).execute(worker) == {"ran": one}
    assert PrepareTask((one,)).execute(worker) == {}
    assert worker.readied == (one,)
    assert PrepareTask((one,)).source == RunTask(one).source == one.source
