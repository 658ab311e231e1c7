"""The processes that run one command together, where torchrun has started several."""

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

from regtta.commands.torchrun import place
from regtta.errors import ProcessError, RegttaError
from regtta.features import model_device
from regtta.processes import ALONE, Processes, processes_of

# How long one waits for another. Processes that have ended are noticed at once; this is for one that hangs.
PATIENCE = timedelta(minutes=30)
# An error that all have is told by the first. It ends then, and torchrun ends the others while they still wait.
SECONDS_FOR_THE_FIRST = 3


@dataclass(frozen=True)
class Team:
    """The processes of one command. The first speaks and writes for all.

    Attributes:
        processes: all of them, through memory.
        group: the same, as torch.distributed has it; ``None`` for one process alone.
        local_rank: the number of this one among those on this machine.
    """

    processes: Processes = ALONE
    group: "dist.ProcessGroup | None" = None
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes."""
        return self.processes.rank == 0

    def device(self, asked: str | None) -> str | None:
        """Where this process is to run, given what the user asked for: each has a GPU of its own.

        Example:
            >>> Team(local_rank=3).device("cpu")
            'cpu'
        """
        wants_gpu = asked is not None and asked.partition(":")[0] == "cuda"
        return f"cuda:{self.local_rank}" if wants_gpu and self.processes.size > 1 else asked

    def group_for(self, model: nn.Module) -> "dist.ProcessGroup | None":
        """The group in which ``model`` is worked on: through the GPUs where it lies on one, else through memory.

        A model that its factory has put on a GPU is moved to the one of this process.
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
    """The team that torchrun has started this process for; one process alone without torchrun."""
    here = place()
    if here is None:
        yield ONE
        return
    try:
        dist.init_process_group("gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # torch raises either
        raise ProcessError(
            f"The processes that torchrun started cannot meet: {str(error).splitlines()[0]}. Start them again."
        ) from error
    group = dist.group.WORLD
    processes = processes_of(group)
    _draw_alike(processes)
    try:
        with _told_when_ended(processes):
            yield Team(processes, group, here.local_rank)
    except BaseException as error:
        if isinstance(error, RegttaError) and not isinstance(error, ProcessError) and processes.rank > 0:
            time.sleep(SECONDS_FOR_THE_FIRST)
        # Leaving a group of GPUs waits for what is under way in it, and that may be waiting for this process.
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


@contextmanager
def _told_when_ended(processes: Processes) -> Iterator[None]:
    """While the block runs, an end that comes from torchrun is an error that the first process tells."""

    def end(*_: object) -> None:
        raise ProcessError(
            "torchrun has ended this process, since another one has ended. That one's error, or what torchrun says "
            "below, says why."
        )

    if processes.rank > 0:
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _draw_alike(processes: Processes) -> None:
    """Random numbers are the same in all processes, so that a loader that shuffles does it alike in each."""
    seed = int(processes.first(str(torch.initial_seed())) or 0)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
