"""Batches of inputs with their labels, and the shard of each process."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from regtta.models import Inputs

Item = TypeVar("Item")


@dataclass(frozen=True)
class BatchShard:
    """Shard of every ``size``-th batch, starting at batch ``rank``.

    Example:
        >>> list(BatchShard(1, 3).select(range(8)))
        [1, 4, 7]
    """

    rank: int = 0
    size: int = 1

    def contains(self, index: int) -> bool:
        """Return True if batch ``index`` belongs to the shard."""
        return index % self.size == self.rank

    def select(self, items: Iterable[Item]) -> Iterator[Item]:
        """Return the items that belong to the shard."""
        return islice(items, self.rank, None, self.size)


ALL_BATCHES = BatchShard()


def shard_loader(source: Iterable[object], shard: BatchShard) -> Iterable[object] | None:
    """Return a loader of the shard that does not load other batches; ``None`` if ``source`` cannot be sharded."""
    if isinstance(source, list | tuple):
        return source[shard.rank :: shard.size]
    # Subclasses may override more than these attributes express.
    if type(source) is DataLoader and source.batch_sampler is not None:
        return DataLoader(
            source.dataset,
            batch_sampler=_ShardedBatchSampler(source.batch_sampler, shard),
            num_workers=source.num_workers,
            collate_fn=source.collate_fn,
            pin_memory=source.pin_memory,
            timeout=source.timeout,
            worker_init_fn=source.worker_init_fn,
            multiprocessing_context=source.multiprocessing_context,
            generator=source.generator,
            prefetch_factor=source.prefetch_factor,
        )
    return None


class _ShardedBatchSampler(Sampler[list[int]]):
    def __init__(self, batches: Iterable[list[int]], shard: BatchShard) -> None:
        self._batches = batches
        self._shard = shard

    def __iter__(self) -> Iterator[list[int]]:
        return self._shard.select(self._batches)


@dataclass(frozen=True)
class LabelledBatch:
    """Batch of ``inputs`` ``(B, ...)`` and, if available, ``targets`` ``(B,)`` or ``(B, O)``."""

    inputs: Inputs
    targets: Tensor | None = None


class Data(Protocol):
    """Data that a command iterates over, in one or more passes."""

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the labels; empty without labels."""

    @property
    def rows(self) -> int | None:
        """Number of samples; ``None`` if unknown in advance."""

    @property
    def reiterable(self) -> bool:
        """True if :meth:`batches` can be called more than once."""

    @property
    def advice(self) -> str:
        """Advice for the error message if the model rejects the inputs."""

    def batches(self, shard: BatchShard = ALL_BATCHES) -> Iterator[LabelledBatch]:
        """Iterate once over the batches in ``shard``, in the order of the rows."""
