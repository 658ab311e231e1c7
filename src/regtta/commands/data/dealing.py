"""Which batches of some data are taken, where several processes share them out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from torch.utils.data import DataLoader, Sampler

Item = TypeVar("Item")


@dataclass(frozen=True)
class Deal:
    """Every ``size``-th batch, from the one numbered ``rank`` on.

    Example:
        >>> list(Deal(1, 3).of(range(8)))
        [1, 4, 7]
    """

    rank: int = 0
    size: int = 1

    def takes(self, index: int) -> bool:
        """Whether batch ``index`` is one of them."""
        return index % self.size == self.rank

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """Those of ``items``."""
        return islice(items, self.rank, None, self.size)


ALL = Deal()


def dealt_loader(source: Iterable[object], deal: Deal) -> Iterable[object] | None:
    """A loader of those batches alone, so that the others are not even made; ``None`` where it must make all."""
    if isinstance(source, list | tuple):
        return source[deal.rank :: deal.size]
    # One of another class may do more than its attributes say.
    if type(source) is DataLoader and source.batch_sampler is not None:
        return DataLoader(
            source.dataset,
            batch_sampler=_DealtBatches(source.batch_sampler, deal),
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


class _DealtBatches(Sampler[list[int]]):
    def __init__(self, batches: Iterable[list[int]], deal: Deal) -> None:
        self._batches = batches
        self._deal = deal

    def __iter__(self) -> Iterator[list[int]]:
        return self._deal.of(self._batches)
