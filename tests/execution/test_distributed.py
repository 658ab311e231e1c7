import os
import signal

import pytest
import torch
from torch import distributed as dist

from helpers.process_groups import run_in_processes
from regtta.errors import MismatchError, ProcessError
from regtta.execution.distributed import SINGLE_PROCESS, ProcessGroupComm, make_communicator


def _rows(rank: int) -> torch.Tensor:
    return torch.arange(rank * 10, rank * 10 + 3 * rank, dtype=torch.float64).reshape(rank, 3)


def _exchanges(group: dist.ProcessGroup) -> dict[str, object]:
    together = make_communicator(group)
    mine = _rows(together.rank)
    counts = together.counts(len(mine))
    rows = together.gather(mine, counts)
    return {
        "counts": counts,
        "rows": rows,
        "own": together.own(rows, counts),
        "nothing": together.gather(mine[:0], together.counts(0)).shape,
        "whole": together.gather(torch.tensor([together.rank]), [1] * together.size).tolist(),
        "sum": together.reduce(torch.tensor([together.rank, 1.0])).tolist(),
        "least": together.reduce(torch.tensor(float(together.rank)), "min").item(),
        "greatest": together.reduce(torch.tensor(together.rank), "max").item(),
        "first": together.first(None if together.rank == 0 else f"λ{together.rank}"),
        "nobody": together.first(None),
        "empty": together.first("" if together.rank == 1 else None),
    }


@pytest.mark.parametrize("size", [2, 3])
def test_what_is_exchanged_is_the_same_everywhere(tmp_path, size):
    results = run_in_processes(size, _exchanges, tmp_path)
    everything = torch.cat([_rows(rank) for rank in range(size)])
    for rank, found in enumerate(results):
        assert found["counts"] == list(range(size))
        assert torch.equal(found["rows"], everything)
        assert torch.equal(found["own"], _rows(rank))
        assert found["nothing"] == (0, 3)
        assert found["whole"] == list(range(size))
        assert found["sum"] == [sum(range(size)), size]
        assert (found["least"], found["greatest"]) == (0, size - 1)
        assert (found["first"], found["nobody"], found["empty"]) == ("λ1", None, "")


def _gradients(group: dist.ProcessGroup) -> torch.Tensor:
    together = make_communicator(group)
    mine = _rows(together.rank + 1).requires_grad_()
    rows = together.gather(mine, together.counts(len(mine)))
    # Each process looks at the whole with eyes of its own.
    (rows**2 * (together.rank + 1)).sum().backward()
    return mine.grad


def test_gradients_are_summed_over_processes(tmp_path):
    for rank, gradient in enumerate(run_in_processes(3, _gradients, tmp_path)):
        assert torch.equal(gradient, 2 * _rows(rank + 1) * (1 + 2 + 3))


def _same(group: dist.ProcessGroup) -> list[str]:
    together = make_communicator(group)
    together.check_same("model", "one")
    try:
        together.check_same("model", f"{together.rank // 2}")
    except MismatchError as error:
        return [str(error)]
    return []


def test_what_must_be_the_same_is_checked(tmp_path):
    for found in run_in_processes(3, _same, tmp_path):
        assert found == ["Process 2 has a different model from process 0. Pass the same model to all processes."]


def _one_dies(group: dist.ProcessGroup) -> str:
    together = make_communicator(group)
    together.counts(0)  # all are here
    if together.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        together.reduce(torch.ones(3))
    except ProcessError as error:
        return str(error)
    return "went on"


def test_a_process_that_dies_ends_the_others_with_a_clear_error(tmp_path):
    first, dead, last = run_in_processes(3, _one_dies, tmp_path)
    assert dead is None
    for survivor in (first, last):
        assert survivor.startswith("Another process of the group has ended or does not answer")


def test_alone_everything_is_what_it_was():
    rows = torch.ones(2, 3)
    assert SINGLE_PROCESS.gather(rows, [2]) is rows
    assert torch.equal(SINGLE_PROCESS.own(rows, SINGLE_PROCESS.counts(2)), rows)
    assert SINGLE_PROCESS.reduce(rows) is rows
    assert SINGLE_PROCESS.first("a") == "a"
    SINGLE_PROCESS.check_same("model", "one")


def _of_one(group: dist.ProcessGroup) -> bool:
    return make_communicator(group) is SINGLE_PROCESS and make_communicator(None) is SINGLE_PROCESS


def test_a_group_of_one_is_alone(tmp_path):
    assert run_in_processes(1, _of_one, tmp_path) == [True]


def _over_nccl(_):
    dist.destroy_process_group()
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    together = ProcessGroupComm(dist.group.WORLD)  # a group of one, but by the same ways as one of many
    rows = torch.arange(6.0, device="cuda").reshape(3, 2).requires_grad_()
    gathered = together.gather(rows, together.dealt(rows))
    (gathered**2).sum().backward()
    found = [
        torch.equal(gathered, rows),
        torch.equal(rows.grad, 2 * rows),
        gathered.is_cuda,
        together.counts(4) == [4],
        together.texts("λ") == ["λ"],
        together.reduce(torch.tensor([1.5])).tolist() == [1.5],
    ]
    together.check_same("model", "one")
    return found


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_nccl_carries_what_lies_on_a_gpu_and_what_does_not(tmp_path):
    assert run_in_processes(1, _over_nccl, tmp_path) == [[True] * 6]


def test_no_group_no_work():
    with pytest.raises(ProcessError, match="init_process_group"):
        ProcessGroupComm(object())
