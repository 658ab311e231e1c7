from collections import deque

import pytest

from helpers.sweeps import Remembering, specs
from regtta_bench.sweep.executors.base import Readying, Running, made_by


class Workers:
    """Does one task a call, the last given first or the first; nothing ends at every other call."""

    def __init__(self, first=True):
        self.given, self.done, self.news, self.first, self.calls = deque(), [], [], first, 0

    def give(self, task):
        self.given.append(task)

    def ended(self):
        self.calls += 1
        if self.calls % 2:
            return None
        task = self.given.popleft() if self.first else self.given.pop()
        self.done.append(task)
        if isinstance(task, Readying):
            self.news.append((task.source.name, 1, 1))
        return task, {"made": len(self.done)}

    def trainings(self):
        news, self.news = self.news, []
        return news


@pytest.mark.parametrize("first", [True, False])
def test_every_run_is_made_once_and_after_its_source_model(first):
    staff, listener = Workers(first), Remembering()
    made = [spec for spec, _ in made_by(staff, specs(), listener)]
    assert sorted(map(repr, made)) == sorted(map(repr, specs()))
    for index, task in enumerate(staff.done):
        if isinstance(task, Running):
            assert task.source in [done.source for done in staff.done[:index] if isinstance(done, Readying)]
    assert [news[0] for news in listener.trained] == [t.source.name for t in staff.done if isinstance(t, Readying)]


def test_all_runs_on_a_source_model_are_known_to_who_readies_it():
    staff = Workers()
    list(made_by(staff, specs(), Remembering()))
    ready = [task for task in staff.done if isinstance(task, Readying)]
    assert [len(task.specs) for task in ready] == [len(specs()) // 2] * 2


def test_what_came_of_a_run_is_its_own():
    staff = Workers()
    for spec, result in made_by(staff, specs(1), Remembering()):
        assert staff.done[result["made"] - 1] == Running(spec)


def test_a_task_asks_the_worker_for_what_it_is():
    class Worker:
        def run(self, spec):
            return {"ran": spec}

        def ready(self, specs):
            self.readied = specs

    worker, one, *_ = Worker(), *specs(1)
    assert Running(one).by(worker) == {"ran": one}
    assert Readying((one,)).by(worker) == {}
    assert worker.readied == (one,)
    assert Readying((one,)).source == Running(one).source == one.source
