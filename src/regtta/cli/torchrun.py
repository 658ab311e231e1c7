"""One command run by several processes that torchrun started."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import distributed as dist
from torch import nn

from regtta.cli.rank_info import get_rank_info
from regtta.errors import ProcessError, RegttaError
from regtta.execution import SINGLE_PROCESS, Communicator, make_communicator
from regtta.models import model_device

# Timeout for a process that hangs; processes that have ended are detected at once.
PROCESS_TIMEOUT = timedelta(minutes=30)
# The first process reports an error common to all; the others wait this long for torchrun to end them.
FIRST_PROCESS_GRACE_SECONDS = 3


@dataclass(frozen=True)
class WorkerGroup:
    """Processes that run one command; the first prints and writes files.

    Attributes:
        processes: collective operations on CPU tensors.
        process_group: the process group of torch.distributed; ``None`` for a single process.
        local_rank: rank of this process on its machine.
    """

    processes: Communicator = SINGLE_PROCESS
    process_group: "dist.ProcessGroup | None" = None
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """True if this process prints and writes files."""
        return self.processes.rank == 0

    def device(self, requested: str | None) -> str | None:
        """Return the device of this process: its own GPU if ``requested`` is a GPU and there are several processes.

        Example:
            >>> WorkerGroup(local_rank=3).device("cpu")
            'cpu'
        """
        wants_gpu = requested is not None and requested.partition(":")[0] == "cuda"
        return f"cuda:{self.local_rank}" if wants_gpu and self.processes.size > 1 else requested

    def process_group_for(self, model: nn.Module) -> "dist.ProcessGroup | None":
        """Return the process group for ``model``: NCCL if it is on a GPU, else gloo.

        A model that its factory put on a GPU is moved to the GPU of this process.
        """
        kind = model_device(model).type
        self.processes.check_same("kind of device", kind)
        if self.process_group is None or kind != "cuda":
            return self.process_group
        torch.cuda.set_device(self.local_rank)
        model.to(f"cuda:{self.local_rank}")
        return dist.new_group(backend="nccl", timeout=PROCESS_TIMEOUT)  # type: ignore[return-value]


SINGLE_WORKER = WorkerGroup()


@contextmanager
def join_worker_group() -> Iterator[WorkerGroup]:
    """Yield the processes started by torchrun; a single process without torchrun."""
    info = get_rank_info()
    if info is None:
        yield SINGLE_WORKER
        return
    try:
        dist.init_process_group("gloo", timeout=PROCESS_TIMEOUT)
    except (RuntimeError, ValueError) as error:  # torch raises either
        raise ProcessError(
            f"The processes that torchrun started cannot connect: {str(error).splitlines()[0]}. Start them again."
        ) from error
    group = dist.group.WORLD
    processes = make_communicator(group)
    _synchronize_seeds(processes)
    try:
        with _report_termination(processes):
            yield WorkerGroup(processes, group, info.local_rank)
    except BaseException as error:
        if isinstance(error, RegttaError) and not isinstance(error, ProcessError) and processes.rank > 0:
            time.sleep(FIRST_PROCESS_GRACE_SECONDS)
        # Destroying an NCCL group waits for pending operations, which may in turn wait for this process.
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


@contextmanager
def _report_termination(processes: Communicator) -> Iterator[None]:
    """Convert SIGTERM from torchrun into a ProcessError in the first process while the block runs."""

    def raise_error(*_: object) -> None:
        raise ProcessError(
            "torchrun has terminated this process because another one has ended. See the error of that process, or the "
            "output of torchrun below."
        )

    if processes.rank > 0:
        yield
        return
    previous = signal.signal(signal.SIGTERM, raise_error)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _synchronize_seeds(processes: Communicator) -> None:
    """Give all processes the same seed, so that a loader that shuffles yields the same batches in each."""
    seed = int(processes.first(str(torch.initial_seed())) or 0)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
