"""One command run by several processes that torchrun started."""

import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import distributed as dist
from torch import nn

from regtta.errors import ProcessError, RegttaError
from regtta.execution import SINGLE_PROCESS, Communicator, make_communicator
from regtta.models import model_device


@dataclass(frozen=True)
class Place:
    """Position of a process among those that torchrun has started.

    Attributes:
        rank: rank, from 0.
        size: number of processes.
        local_rank: rank on this machine.
    """

    rank: int
    size: int
    local_rank: int


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return the position of this process; ``None`` without torchrun or with a single process.

    Example:
        >>> place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
        Place(rank=1, size=2, local_rank=1)
        >>> place({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is place({})
        True
    """
    found = [environment.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    if not all(value.isdecimal() for value in found):
        return None
    rank, size, local_rank = map(int, found)
    return Place(rank, size, local_rank) if size > 1 else None


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if this process prints and writes files."""
    found = place(environment)
    return found is None or found.rank == 0


# Timeout for a process that hangs; processes that have ended are detected at once.
PATIENCE = timedelta(minutes=30)
# An error common to all processes is reported by the first. The others wait for so long until torchrun ends them.
SECONDS_FOR_THE_FIRST = 3


@dataclass(frozen=True)
class Team:
    """Processes that run one command; the first prints and writes files.

    Attributes:
        processes: collective operations on CPU tensors.
        group: the process group of torch.distributed; ``None`` for a single process.
        local_rank: rank of this process on its machine.
    """

    processes: Communicator = SINGLE_PROCESS
    group: "dist.ProcessGroup | None" = None
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """True if this process prints and writes files."""
        return self.processes.rank == 0

    def device(self, asked: str | None) -> str | None:
        """Return the device of this process: its own GPU if ``asked`` is a GPU and there are several processes.

        Example:
            >>> Team(local_rank=3).device("cpu")
            'cpu'
        """
        wants_gpu = asked is not None and asked.partition(":")[0] == "cuda"
        return f"cuda:{self.local_rank}" if wants_gpu and self.processes.size > 1 else asked

    def group_for(self, model: nn.Module) -> "dist.ProcessGroup | None":
        """Return the process group for ``model``: NCCL if it is on a GPU, else gloo.

        A model that its factory put on a GPU is moved to the GPU of this process.
        """
        kind = model_device(model).type
        self.processes.check_same("kind of device", kind)
        if self.group is None or kind != "cuda":
            return self.group
        torch.cuda.set_device(self.local_rank)
        model.to(f"cuda:{self.local_rank}")
        return dist.new_group(backend="nccl", timeout=PATIENCE)  # type: ignore[return-value]


ONE = Team()


@contextmanager
def joined() -> Iterator[Team]:
    """Yield the process group started by torchrun; a single process without torchrun."""
    here = place()
    if here is None:
        yield ONE
        return
    try:
        dist.init_process_group("gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # torch raises either
        raise ProcessError(
            f"The processes that torchrun started cannot connect: {str(error).splitlines()[0]}. Start them again."
        ) from error
    group = dist.group.WORLD
    processes = make_communicator(group)
    _seed_alike(processes)
    try:
        with _termination_reported(processes):
            yield Team(processes, group, here.local_rank)
    except BaseException as error:
        if isinstance(error, RegttaError) and not isinstance(error, ProcessError) and processes.rank > 0:
            time.sleep(SECONDS_FOR_THE_FIRST)
        # Destroying an NCCL group waits for pending operations, which may in turn wait for this process.
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


@contextmanager
def _termination_reported(processes: Communicator) -> Iterator[None]:
    """Convert SIGTERM from torchrun into a ProcessError in the first process while the block runs."""

    def end(*_: object) -> None:
        raise ProcessError(
            "torchrun has terminated this process because another one has ended. See the error of that process, or the "
            "output of torchrun below."
        )

    if processes.rank > 0:
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _seed_alike(processes: Communicator) -> None:
    """Seed all processes alike, so that a loader that shuffles yields the same batches in each."""
    seed = int(processes.first(str(torch.initial_seed())) or 0)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
