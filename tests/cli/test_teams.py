import random

import numpy as np
import torch
from torch import nn

from helpers.process_groups import run_in_processes
from regtta.cli.torchrun import ONE, Team, _seed_alike, joined
from regtta.errors import MismatchError
from regtta.execution.distributed import processes_of


def test_without_torchrun_one_process_is_the_team(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    before = torch.initial_seed()
    with joined() as team:
        assert team is ONE
        assert team.first
        assert team.device("cuda:1") == "cuda:1"
        assert team.group_for(nn.Linear(1, 1)) is None
    assert torch.initial_seed() == before


def _team(group) -> dict[str, object]:
    team = Team(processes_of(group), group, local_rank=group.rank())
    torch.manual_seed(group.rank())
    _seed_alike(team.processes)
    model = nn.Linear(1, 1)
    found = {
        "first": team.first,
        "devices": [team.device(asked) for asked in (None, "cpu", "cuda", "cuda:7", "mps")],
        "numbers": (torch.rand(1).item(), random.random(), np.random.random()),
        "group": team.group_for(model) is group,
    }
    try:
        team.group_for(model.to("meta") if group.rank() == 1 else model)
    except MismatchError as error:
        found["apart"] = str(error)
    return found


def test_each_process_has_its_own_gpu_and_the_same_random_numbers(tmp_path):
    first, second = run_in_processes(2, _team, tmp_path)
    assert (first["first"], second["first"]) == (True, False)
    assert first["devices"] == [None, "cpu", "cuda:0", "cuda:0", "mps"]
    assert second["devices"] == [None, "cpu", "cuda:1", "cuda:1", "mps"]
    assert first["numbers"] == second["numbers"]
    assert first["group"]
    assert second["group"]
    assert "a different kind of device" in first["apart"]
    assert "a different kind of device" in second["apart"]
