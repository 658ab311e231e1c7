"""What a worker does, done in this process."""

import dataclasses
import platform

import pytest
import torch

from helpers.failing_workers import made_up
from regtta._version import __version__
from regtta.errors import MismatchError, MissingFileError
from regtta_bench.sweep.executors.base import Readying, Running
from regtta_bench.sweep.executors.ray import tasks
from regtta_bench.sweep.executors.ray.tasks import Order, check_machine, marked, work

ONE, TWO = made_up(1, 2)


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(tasks, "_bench", None)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def order(kit):
    """Of a sweep whose driver shares the disk."""
    with marked(kit.models) as mark:
        yield Order(kit, mark, threads=2)


class Silence:
    """A pen that nobody reads after."""

    def __init__(self, board):
        self.told = []

    def __call__(self, *news):
        self.told.append(news)

    def put_down(self):
        self.told.append("put down")


@pytest.fixture
def pens(monkeypatch):
    made = []
    monkeypatch.setattr(tasks, "Writer", lambda board: made.append(Silence(board)) or made[-1])
    return made


def test_what_the_driver_does_not_know_comes_back_and_all_is_told_before(order, kit, pens):
    outcome = work(order, None, {}, Readying((ONE, TWO)))
    (path,) = kit.models.glob("*.safetensors")
    assert outcome.made == {path.name: path.read_bytes()}
    assert (outcome.result, outcome.scratch_on) == ({}, None)
    assert pens[0].told == [("source0", 1, 2), ("source0", 2, 2), "put down"]
    assert torch.get_num_threads() == 2
    again = work(order, None, {path.name: None}, Running(ONE))
    assert (again.result["source_fingerprint"], again.made) == (path.read_text(), {})


def test_a_process_keeps_its_worker_from_task_to_task_and_has_a_new_one_for_another_sweep(order, kit, pens):
    for spec in (ONE, TWO):
        work(order, None, {}, Readying((spec,)))
    assert len(pens) == 1
    with marked(kit.models) as mark:
        work(dataclasses.replace(order, mark=mark), None, {}, Running(ONE))
    assert len(pens) == 2


def test_what_is_missing_on_a_machine_names_it(order, kit, pens):
    kit.note("data-is-missing")
    with pytest.raises(MissingFileError, match=f"^On {platform.node()}: There is no data.$"):
        work(order, None, {}, Running(ONE))
    with pytest.raises(MissingFileError, match=f"^On {platform.node()}: "):
        check_machine((kit, [ONE]), __version__)
    assert kit.done(ONE.name) == 0


def test_a_machine_that_joins_late_with_another_version_does_nothing(order, kit):
    with pytest.raises(MismatchError, match=f"has regtta {__version__}, but the sweep was started with 9.9"):
        work(dataclasses.replace(order, version="9.9"), None, {}, Running(ONE))
    assert kit.done(ONE.name) == 0
