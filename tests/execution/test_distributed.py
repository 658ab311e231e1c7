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


def _run_collectives(group: dist.ProcessGroup) -> dict[str, object]:
    comm = make_communicator(group)
    own_rows = _rows(comm.rank)
    counts = comm.counts(len(own_rows))
    rows = comm.gather(own_rows, counts)
    return {
        "counts": counts,
        "rows": rows,
        "own": comm.own(rows, counts),
        "nothing": comm.gather(own_rows[:0], comm.counts(0)).shape,
        "whole": comm.gather(torch.tensor([comm.rank]), [1] * comm.size).tolist(),
        "sum": comm.reduce(torch.tensor([comm.rank, 1.0])).tolist(),
        "least": comm.reduce(torch.tensor(float(comm.rank)), "min").item(),
        "greatest": comm.reduce(torch.tensor(comm.rank), "max").item(),
        "first": comm.first(None if comm.rank == 0 else f"λ{comm.rank}"),
        "nobody": comm.first(None),
        "empty": comm.first("" if comm.rank == 1 else None),
    }


@pytest.mark.parametrize("size", [2, 3])
def test_collective_operations_agree_in_every_process(tmp_path, size):
    results = run_in_processes(size, _run_collectives, tmp_path)
    all_rows = torch.cat([_rows(rank) for rank in range(size)])
    for rank, found in enumerate(results):
        assert found["counts"] == list(range(size))
        assert torch.equal(found["rows"], all_rows)
        assert torch.equal(found["own"], _rows(rank))
        assert found["nothing"] == (0, 3)
        assert found["whole"] == list(range(size))
        assert found["sum"] == [sum(range(size)), size]
        assert (found["least"], found["greatest"]) == (0, size - 1)
        assert (found["first"], found["nobody"], found["empty"]) == ("λ1", None, "")


def _gathered_gradients(group: dist.ProcessGroup) -> torch.Tensor:
    comm = make_communicator(group)
    own_rows = _rows(comm.rank + 1).requires_grad_()
    rows = comm.gather(own_rows, comm.counts(len(own_rows)))
    # Each process computes a different loss from the gathered rows.
    (rows**2 * (comm.rank + 1)).sum().backward()
    return own_rows.grad


def test_gradients_are_summed_over_processes(tmp_path):
    for rank, gradient in enumerate(run_in_processes(3, _gathered_gradients, tmp_path)):
        assert torch.equal(gradient, 2 * _rows(rank + 1) * (1 + 2 + 3))


def _check_same(group: dist.ProcessGroup) -> list[str]:
    comm = make_communicator(group)
    comm.check_same("model", "one")
    try:
        comm.check_same("model", f"{comm.rank // 2}")
    except MismatchError as error:
        return [str(error)]
    return []


def test_check_same_raises_on_a_difference(tmp_path):
    for found in run_in_processes(3, _check_same, tmp_path):
        assert found == ["Process 2 has a different model from process 0. Pass the same model to all processes."]


def _one_dies(group: dist.ProcessGroup) -> str:
    comm = make_communicator(group)
    comm.counts(0)  # wait until all processes have started
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.reduce(torch.ones(3))
    except ProcessError as error:
        return str(error)
    return "went on"


def test_a_killed_process_raises_a_clear_error_in_the_others(tmp_path):
    first, dead, last = run_in_processes(3, _one_dies, tmp_path)
    assert dead is None
    for survivor in (first, last):
        assert survivor.startswith("Another process of the group has ended or does not answer")


def test_collective_operations_of_a_single_process_are_identities():
    rows = torch.ones(2, 3)
    assert SINGLE_PROCESS.gather(rows, [2]) is rows
    assert torch.equal(SINGLE_PROCESS.own(rows, SINGLE_PROCESS.counts(2)), rows)
    assert SINGLE_PROCESS.reduce(rows) is rows
    assert SINGLE_PROCESS.first("a") == "a"
    SINGLE_PROCESS.check_same("model", "one")


def _is_single_process(group: dist.ProcessGroup) -> bool:
    return make_communicator(group) is SINGLE_PROCESS and make_communicator(None) is SINGLE_PROCESS


def test_a_group_of_one_uses_the_single_process_communicator(tmp_path):
    assert run_in_processes(1, _is_single_process, tmp_path) == [True]


def _run_over_nccl(_):
    dist.destroy_process_group()
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    comm = ProcessGroupComm(dist.group.WORLD)  # a group of one that still uses the collective operations
    rows = torch.arange(6.0, device="cuda").reshape(3, 2).requires_grad_()
    gathered = comm.gather(rows, comm.shard_sizes(len(rows), "one row"))
    (gathered**2).sum().backward()
    found = [
        torch.equal(gathered, rows),
        torch.equal(rows.grad, 2 * rows),
        gathered.is_cuda,
        comm.counts(4) == [4],
        comm.texts("λ") == ["λ"],
        comm.reduce(torch.tensor([1.5])).tolist() == [1.5],
    ]
    comm.check_same("model", "one")
    return found


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_nccl_handles_gpu_and_cpu_tensors(tmp_path):
    assert run_in_processes(1, _run_over_nccl, tmp_path) == [[True] * 6]


def test_an_invalid_process_group_is_rejected():
    with pytest.raises(ProcessError, match="init_process_group"):
        ProcessGroupComm(object())
