import torch

from helpers.sweeps import RecordingListener, make_specs
from regtta_bench.sweep.executors.local import SequentialExecutor


def test_the_number_of_threads_is_restored(california_config):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        made = SequentialExecutor().execute(make_specs(1), california_config, RecordingListener())
        next(made)
        assert torch.get_num_threads() == 1  # for so small a model
        made.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
