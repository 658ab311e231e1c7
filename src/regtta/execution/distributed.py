"""Exchange of rows, sums and errors between processes of torch.distributed that adapt one model together.

Each process holds some of the samples. Values computed over all of them are the same in every process, and so are
their gradients: :meth:`ProcessGroupComm.gather` is differentiable, and a loss that every process computes alike is
counted once by descending ``loss / size`` in each and summing the gradients.
"""

import itertools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch import distributed as dist

from regtta.errors import MismatchError, PeerError, ProcessError, RegttaError

Reduction = Literal["sum", "min", "max"]


class Communicator:
    """Collective operations of a single process, which are all trivial; :class:`ProcessGroupComm` overrides them.

    Attributes:
        rank: rank of this process, from 0.
        size: number of processes.
    """

    rank: int = 0
    size: int = 1

    def counts(self, rows: int) -> list[int]:
        """Return the number of rows of each process, by rank."""
        return [rows]

    def shard_sizes(self, rows: int, sample: str) -> list[int]:  # noqa: ARG002 - used by the subclass
        """Return the number of rows of each process, by rank; raise unless all describe a sample alike."""
        return [rows]

    def collective(self) -> AbstractContextManager[None]:
        """Mark a block of collective operations; after an error in it, this process can no longer synchronize."""
        return nullcontext()

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:  # noqa: ARG002 - used by the subclass
        """Return the rows ``(n, ...)`` of all processes, concatenated by rank; differentiable.

        The gradient of a process's rows is the sum of the gradients of all processes with respect to them.
        """
        return rows

    def own(self, rows: Tensor, counts: Sequence[int]) -> Tensor:  # noqa: ARG002 - used by the subclass
        """Return the slice of gathered ``rows`` that belongs to this process."""
        return rows

    def reduce(self, values: Tensor, by: Reduction = "sum") -> Tensor:  # noqa: ARG002 - used by the subclass
        """Return the elementwise sum, minimum or maximum over the processes, without gradients."""
        return values

    def texts(self, text: str | None) -> list[str | None]:
        """Return the text of each process, by rank."""
        return [text]

    def first(self, text: str | None) -> str | None:
        """Return the text of the lowest rank that has one, or None."""
        return next((found for found in self.texts(text) if found is not None), None)

    def check_same(self, what: str, text: str) -> None:
        """Raise a MismatchError unless all processes have the same ``text``."""


SINGLE_PROCESS = Communicator()


def make_communicator(group: "dist.ProcessGroup | None") -> Communicator:
    """Return the processes of a torch.distributed group; :data:`SINGLE_PROCESS` for ``None`` or a group of one."""
    if group is None:
        return SINGLE_PROCESS
    together = ProcessGroupComm(group)
    return together if together.size > 1 else SINGLE_PROCESS


class ProcessGroupComm(Communicator):
    """Collective operations of a process group. All processes must make the same calls in the same order.

    Args:
        group: the process group, such as ``torch.distributed.group.WORLD``.
    """

    def __init__(self, group: "dist.ProcessGroup") -> None:
        if not dist.is_initialized():
            raise ProcessError(
                "The default process group is not initialized. Call torch.distributed.init_process_group first, and "
                "start the program with torchrun."
            )
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise ProcessError("This process is not a member of the group. Pass a group that it belongs to.")
        self._out_of_step = False
        on_gpu = dist.get_backend(group) == "nccl"
        # NCCL transfers GPU tensors, gloo CPU tensors.
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

    def counts(self, rows: int) -> list[int]:
        """Return the number of rows of each process, by rank."""
        return [int(count) for count in self._all(torch.tensor([rows]))]

    def shard_sizes(self, rows: int, sample: str) -> list[int]:
        """Return the number of rows of each process, by rank; raise unless all describe a sample alike."""
        kind = zlib.crc32(sample.encode())
        found = [part.tolist() for part in self._all(torch.tensor([rows, kind]))]
        other = next((rank for rank, (_, theirs) in enumerate(found) if theirs != found[0][1]), None)
        if other is not None:
            raise MismatchError(
                f"Process {other} has samples of a different shape or dtype from process 0; this process, {self.rank}, "
                f"has {sample}. A process without samples must pass x[:0]."
            )
        return [count for count, _ in found]

    @contextmanager
    def collective(self) -> Iterator[None]:
        """Mark a block of collective operations; after an error in it, this process can no longer synchronize."""
        if self._out_of_step:
            raise ProcessError(
                "This process failed during an earlier collective operation and is out of step with the others. "
                "Restart all processes."
            )
        try:
            yield
        except BaseException:
            self._out_of_step = True
            raise

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all processes, concatenated by rank; differentiable."""
        gathered: Tensor = _Gather.apply(rows, self, tuple(counts))
        return gathered

    def own(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the slice of gathered ``rows`` that belongs to this process."""
        start = sum(counts[: self.rank])
        return rows[start : start + counts[self.rank]]

    def reduce(self, values: Tensor, by: Reduction = "sum") -> Tensor:
        """Return the elementwise sum, minimum or maximum over the processes, without gradients."""
        operation = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}[by]
        reduced = values.detach().to(self._device, copy=True).contiguous()
        with _peer_errors():
            dist.all_reduce(reduced, op=operation, group=self.group)
        return reduced.to(values.device)

    def texts(self, text: str | None) -> list[str | None]:
        """Return the text of each process, by rank."""
        data = torch.tensor(list(b"" if text is None else b"+" + text.encode()), dtype=torch.uint8)
        counts = self.counts(len(data))
        joined = bytes(self.all_gather_rows(data, counts).tolist())
        ends = list(itertools.accumulate(counts))
        parts = [joined[end - count : end] for end, count in zip(ends, counts, strict=True)]
        return [part[1:].decode() if part else None for part in parts]

    def check_same(self, what: str, text: str) -> None:
        """Raise a MismatchError unless all processes have the same ``text``."""
        found = self.texts(text)
        other = next((rank for rank, theirs in enumerate(found) if theirs != found[0]), None)
        if other is not None:
            raise MismatchError(
                f"Process {other} has a different {what} from process 0. Pass the same {what} to all processes."
            )

    def all_gather_rows(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all processes without gradients, padded for the transfer, which requires equal shapes."""
        most = max(counts)
        padded = rows.new_zeros(most, *rows.shape[1:], device=self._device)
        padded[: len(rows)] = rows.detach()
        if most == 0:
            return rows.detach()
        parts = [part[:count] for part, count in zip(self._all(padded), counts, strict=True)]
        return torch.cat(parts).to(rows.device)

    def _all(self, values: Tensor) -> list[Tensor]:
        """Return the values of every process, by rank; all must have the same shape."""
        sent = values.to(self._device).contiguous()
        parts = [torch.empty_like(sent) for _ in range(self.size)]
        with _peer_errors():
            dist.all_gather(parts, sent, group=self.group)
        return parts


class _Gather(torch.autograd.Function):
    """Differentiable all-gather of rows, whose backward pass sums the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, processes: ProcessGroupComm, counts: tuple[int, ...]) -> Tensor:
        ctx.processes, ctx.counts = processes, counts
        return processes.all_gather_rows(rows, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = ctx.processes.reduce(gradients[0])
        return ctx.processes.own(total, ctx.counts), None, None


@contextmanager
def _peer_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch.distributed has no specific error for a lost peer
        raise ProcessError(
            "Another process of the group has ended or does not answer, and the others cannot continue without it. See "
            f"the error of that process for the cause ({str(error).splitlines()[0]})."
        ) from error


class BatchSplitter:
    """Split of whole batches, the same in every process, into one shard per process, and the reverse for results.

    Args:
        processes: the processes; each takes an equal part of the rows, in the order of ranks.
        rows: number of rows B of the whole batch.

    Attributes:
        own: the rows of this process.
    """

    def __init__(self, processes: Communicator, rows: int) -> None:
        self._processes = processes
        each, more = divmod(rows, processes.size)
        self._counts = [each + (rank < more) for rank in range(processes.size)]
        start = sum(self._counts[: processes.rank])
        self.own = slice(start, start + self._counts[processes.rank])

    def join(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, given those of this one."""
        return self._processes.gather(rows.detach(), self._counts)

    def join_indices(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Return the indices of all processes in the whole batch, given those of this one in its shard."""
        marked = torch.zeros(self.own.stop - self.own.start, dtype=torch.uint8)
        marked[list(indices)] = 1
        return tuple(self.join(marked).nonzero().flatten().tolist())


@contextmanager
def sync_errors(processes: Communicator) -> Iterator[None]:
    """Run a block in every process and raise in all of them if it raises in any.

    The failed process with the lowest rank re-raises its own error; all others raise a
    :class:`regtta.errors.PeerError` with the same message. The processes synchronize at the end of the block, which
    must not contain collective operations itself.

    Example:
        >>> from regtta.execution.distributed import SINGLE_PROCESS
        >>> with sync_errors(SINGLE_PROCESS):
        ...     int("one")
        Traceback (most recent call last):
        ValueError: invalid literal for int() with base 10: 'one'
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:  # any error must be reported to the other processes
        own = error
    report = None if own is None else f"process {processes.rank} failed: {_sentence(own)}"
    try:
        first = processes.first(report)
    except ProcessError:
        if own is None:
            raise
        first = report  # the other processes are unreachable: raise the error of this one
    if own is not None and first == report:
        raise own
    if first is not None:
        raise PeerError(f"The processes work together, and {first}") from own


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RegttaError) else f"{type(error).__name__}: {text}"
