import pytest
import torch

import regtta
from helpers import small_models
from regtta.errors import ProcessError
from regtta.execution.distributed import SINGLE_PROCESS, Communicator
from regtta.models import LayerOutputs
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


class Hidden(Counting):
    """Collects the outputs of the first layer."""

    def __init__(self):
        self.seen = []

    def recording(self, model):
        self.outputs = LayerOutputs({"0": model[0]})
        return self.outputs

    def update(self, forward, pass_index):
        self.seen.append(self.outputs.values["0"])

    def result(self):
        return {"seen": torch.cat(self.seen)}


def test_outputs_of_layers_are_recorded_in_the_pass_over_each_batch():
    class Method:
        def statistics_collectors(self):
            return {"hidden": Hidden()}

    model, batches = small_models.mlp(), small_models.table(50).split(20)
    source = regtta.collect(model, batches, methods=[Method()])  # the head is found by passes on the first batch
    with torch.no_grad():
        torch.testing.assert_close(source.extras["hidden/seen"], torch.cat([model[0](x) for x in batches]))
