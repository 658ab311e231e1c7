import pytest
import torch

from regtta.errors import ProcessError
from regtta.execution.distributed import SINGLE_PROCESS, Communicator
from regtta.statistics.collectors import Gatherer, Stored


class Two(Communicator):
    size = 2


class Counting(Gatherer):
    def see(self, forward, number):
        pass

    def result(self):
        return {}


class Merging(Counting):
    def merge(self, processes, number):
        pass


def test_what_is_known_beforehand_takes_no_pass_and_comes_out_as_it_is():
    values = {"edges": torch.arange(3.0)}
    stored = Stored(values)
    assert stored.passes == 0
    stored.check(Two())
    stored.merge(Two(), 0)
    assert stored.result() == values


def test_only_several_processes_need_to_know_how_to_merge():
    Counting().check(SINGLE_PROCESS)
    Counting().merge(SINGLE_PROCESS, 0)
    Merging().check(Two())
    with pytest.raises(ProcessError, match=r"Counting cannot be gathered by several processes: it has no merge"):
        Counting().check(Two())
