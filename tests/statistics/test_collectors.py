import pytest
import torch

from regtta.errors import ProcessError
from regtta.execution.distributed import SINGLE_PROCESS, Communicator
from regtta.statistics.collectors import ConstantStatistics, StatisticsCollector


class Two(Communicator):
    size = 2


class Counting(StatisticsCollector):
    def update(self, forward, pass_index):
        pass

    def result(self):
        return {}


class Merging(Counting):
    def merge(self, processes, pass_index):
        pass


def test_constant_statistics_need_no_pass_and_are_returned_unchanged():
    values = {"edges": torch.arange(3.0)}
    stored = ConstantStatistics(values)
    assert stored.passes == 0
    stored.check(Two())
    stored.merge(Two(), 0)
    assert stored.result() == values


def test_merge_is_required_for_several_processes_only():
    Counting().check(SINGLE_PROCESS)
    Counting().merge(SINGLE_PROCESS, 0)
    Merging().check(Two())
    with pytest.raises(ProcessError, match=r"Counting cannot be collected by several processes: it has no merge"):
        Counting().check(Two())
