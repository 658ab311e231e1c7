import torch

from helpers.sweeps import Remembering, specs
from regtta_bench.sweep.executors.local import SequentialExecutor


def test_the_threads_are_put_back(california_tools):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        made = SequentialExecutor().execute(specs(1), california_tools, Remembering())
        next(made)
        assert torch.get_num_threads() == 1  # for so small a model
        made.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
