import random

import numpy as np
import torch
from torch import nn

from helpers.process_groups import run_in_processes
from regtta.cli.torchrun import SINGLE_WORKER, WorkerGroup, _synchronize_seeds, join_worker_group
from regtta.errors import MismatchError
from regtta.execution.distributed import make_communicator


def test_without_torchrun_there_is_a_single_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    before = torch.initial_seed()
    with join_worker_group() as workers:
        assert workers is SINGLE_WORKER
        assert workers.is_first
        assert workers.device("cuda:1") == "cuda:1"
        assert workers.process_group_for(nn.Linear(1, 1)) is None
    assert torch.initial_seed() == before


def _describe_workers(group) -> dict[str, object]:
    workers = WorkerGroup(make_communicator(group), group, local_rank=group.rank())
    torch.manual_seed(group.rank())
    _synchronize_seeds(workers.processes)
    model = nn.Linear(1, 1)
    found = {
        "first": workers.is_first,
        "devices": [workers.device(device) for device in (None, "cpu", "cuda", "cuda:7", "mps")],
        "numbers": (torch.rand(1).item(), random.random(), np.random.random()),
        "group": workers.process_group_for(model) is group,
    }
    try:
        workers.process_group_for(model.to("meta") if group.rank() == 1 else model)
    except MismatchError as error:
        found["apart"] = str(error)
    return found


def test_each_process_has_its_own_gpu_and_the_same_random_numbers(tmp_path):
    first, second = run_in_processes(2, _describe_workers, tmp_path)
    assert (first["first"], second["first"]) == (True, False)
    assert first["devices"] == [None, "cpu", "cuda:0", "cuda:0", "mps"]
    assert second["devices"] == [None, "cpu", "cuda:1", "cuda:1", "mps"]
    assert first["numbers"] == second["numbers"]
    assert first["group"]
    assert second["group"]
    assert "a different kind of device" in first["apart"]
    assert "a different kind of device" in second["apart"]
