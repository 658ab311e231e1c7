"""Several processes at work on one model together, through torch.distributed.

Each process has some of the samples. What is computed over all of them is the same in every process, and so are its
gradients: :meth:`Processes.gather` is differentiable, and a loss that every process computes alike is counted once by
descending ``loss / size`` in each and summing the gradients.
"""

import itertools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch import distributed as dist

from regtta.errors import MismatchError, ProcessError

Reduction = Literal["sum", "min", "max"]


class Processes:
    """One process by itself: all that is exchanged is what was put in.

    Attributes:
        rank: the number of this process, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    def counts(self, rows: int) -> list[int]:
        """How many rows each process has, by rank."""
        return [rows]

    def dealt(self, rows: Tensor) -> list[int]:
        """How many of the rows of a batch each process has, by rank; raises where they are not of one kind."""
        return [len(rows)]

    def in_step(self) -> AbstractContextManager[None]:
        """What all processes do at the same time; one that breaks off in it has lost the others for good."""
        return nullcontext()

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:  # noqa: ARG002 - of use to several
        """The rows (n, ...) of all processes one below the other, by rank; differentiable.

        The gradient of a process's rows is the sum of what all processes have to say about them.
        """
        return rows

    def own(self, rows: Tensor, counts: Sequence[int]) -> Tensor:  # noqa: ARG002 - of use to several
        """The part of this process of gathered ``rows``."""
        return rows

    def reduce(self, values: Tensor, by: Reduction = "sum") -> Tensor:  # noqa: ARG002 - of use to several
        """The sum, least or greatest over the processes of tensors of one shape; without gradients."""
        return values

    def texts(self, text: str | None) -> list[str | None]:
        """The text of each process, by rank."""
        return [text]

    def first(self, text: str | None) -> str | None:
        """The text of the first process that has one."""
        return next((found for found in self.texts(text) if found is not None), None)

    def check_same(self, what: str, text: str) -> None:
        """Raise unless all processes have the same ``text``."""


ALONE = Processes()


def processes_of(group: "dist.ProcessGroup | None") -> Processes:
    """The processes of a group of torch.distributed; this one by itself for ``None``, or for a group of one."""
    if group is None:
        return ALONE
    together = Together(group)
    return together if together.size > 1 else ALONE


class Together(Processes):
    """The processes of a group. All of them must make the same calls in the same order.

    Args:
        group: such as ``torch.distributed.group.WORLD``.
    """

    def __init__(self, group: "dist.ProcessGroup") -> None:
        if not dist.is_initialized():
            raise ProcessError(
                "There is no group of processes. Call torch.distributed.init_process_group first, and start the "
                "program with torchrun."
            )
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise ProcessError("This process is not one of the group. Pass a group that it belongs to.")
        self._lost = False
        on_gpu = dist.get_backend(group) == "nccl"
        # What nccl carries lies on a GPU, what gloo carries in memory.
        self._wire = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

    def counts(self, rows: int) -> list[int]:
        """How many rows each process has, by rank."""
        return [int(count) for count in self._all(torch.tensor([rows]))]

    def dealt(self, rows: Tensor) -> list[int]:
        """How many of the rows of a batch each process has, by rank; raises where they are not of one kind."""
        kind = zlib.crc32(f"{tuple(rows.shape[1:])} {rows.dtype}".encode())
        found = [part.tolist() for part in self._all(torch.tensor([len(rows), kind]))]
        other = next((rank for rank, (_, theirs) in enumerate(found) if theirs != found[0][1]), None)
        if other is not None:
            raise MismatchError(
                f"Process {other} has samples of another shape or dtype than process 0; this one, {self.rank}, has "
                f"{tuple(rows.shape[1:])} of {rows.dtype}. One without samples gives x[:0]."
            )
        return [count for count, _ in found]

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """What all processes do at the same time; one that breaks off in it has lost the others for good."""
        if self._lost:
            raise ProcessError(
                "This process broke off in the middle of what all do together, and is no longer in step with the "
                "others. Start all of them again."
            )
        try:
            yield
        except BaseException:
            self._lost = True
            raise

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes one below the other, by rank; differentiable."""
        gathered: Tensor = _Gather.apply(rows, self, tuple(counts))
        return gathered

    def own(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The part of this process of gathered ``rows``."""
        start = sum(counts[: self.rank])
        return rows[start : start + counts[self.rank]]

    def reduce(self, values: Tensor, by: Reduction = "sum") -> Tensor:
        """The sum, least or greatest over the processes of tensors of one shape; without gradients."""
        operation = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}[by]
        carried = values.detach().to(self._wire, copy=True).contiguous()
        with _answered():
            dist.all_reduce(carried, op=operation, group=self.group)
        return carried.to(values.device)

    def texts(self, text: str | None) -> list[str | None]:
        """The text of each process, by rank."""
        data = torch.tensor(list(b"" if text is None else b"+" + text.encode()), dtype=torch.uint8)
        counts = self.counts(len(data))
        joined = bytes(self.joined(data, counts).tolist())
        ends = list(itertools.accumulate(counts))
        parts = [joined[end - count : end] for end, count in zip(ends, counts, strict=True)]
        return [part[1:].decode() if part else None for part in parts]

    def check_same(self, what: str, text: str) -> None:
        """Raise unless all processes have the same ``text``."""
        found = self.texts(text)
        other = next((rank for rank, theirs in enumerate(found) if theirs != found[0]), None)
        if other is not None:
            raise MismatchError(
                f"Process {other} has another {what} than process 0. All processes must be given the same."
            )

    def joined(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes, without gradients; short ones travel padded, since all must be of one shape."""
        most = max(counts)
        padded = rows.new_zeros(most, *rows.shape[1:], device=self._wire)
        padded[: len(rows)] = rows.detach()
        if most == 0:
            return rows.detach()
        parts = [part[:count] for part, count in zip(self._all(padded), counts, strict=True)]
        return torch.cat(parts).to(rows.device)

    def _all(self, values: Tensor) -> list[Tensor]:
        """The values of every process, all of one shape, by rank."""
        carried = values.to(self._wire).contiguous()
        parts = [torch.empty_like(carried) for _ in range(self.size)]
        with _answered():
            dist.all_gather(parts, carried, group=self.group)
        return parts


class _Gather(torch.autograd.Function):
    """Rows of all processes, with the gradients of all processes back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, processes: Together, counts: tuple[int, ...]) -> Tensor:
        ctx.processes, ctx.counts = processes, counts
        return processes.joined(rows, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = ctx.processes.reduce(gradients[0])
        return ctx.processes.own(total, ctx.counts), None, None


@contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch.distributed has no error of its own for a peer that is gone
        raise ProcessError(
            "Another process of the group has ended or does not answer, and none can go on without it. Its own error "
            f"says why ({str(error).splitlines()[0]})."
        ) from error
