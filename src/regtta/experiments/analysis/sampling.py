"""Uniform random sampling of the rows of a stream in bounded memory."""

import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.options import check_count


class Reservoir:
    """Reservoir sample of up to ``most`` rows, each row seen being kept with the same probability, in stream order.

    Args:
        most: maximum number of rows to keep.
        seed: seed of the sampling.

    Example:
        >>> reservoir = Reservoir(3, seed=0)
        >>> for batch in torch.arange(100).split(10):
        ...     reservoir.see(batch)
        >>> [len(column) for column in reservoir.rows()]
        [3]
    """

    def __init__(self, most: int, *, seed: int) -> None:
        check_count("most", most)
        self._most = most
        self._generator = torch.Generator().manual_seed(seed)
        self._draws = torch.empty(0, dtype=torch.float64)
        self._columns: list[Tensor] = []
        self.seen = 0

    def see(self, *columns: Tensor) -> None:
        """Update the sample with a batch: paired tensors (B, ...), the same number of them in every call."""
        count = len(columns[0])
        if any(len(column) != count for column in columns) or len(columns) != len(self._columns or columns):
            raise BatchError("Expected as many columns as before, all with the same rows.")
        self.seen += count
        draws = torch.cat([self._draws, torch.rand(count, generator=self._generator, dtype=torch.float64)])
        # The rows with the smallest draws are kept, so a row that is dropped once can never return.
        kept = draws.argsort(stable=True)[: self._most].sort().values
        before = len(self._draws)
        self._draws = draws[kept]
        old = self._columns or [column[:0].detach().cpu() for column in columns]
        self._columns = [
            torch.cat([mine[kept[kept < before]], new.detach().cpu()[kept[kept >= before] - before]])
            for mine, new in zip(old, columns, strict=True)
        ]

    def rows(self) -> list[Tensor]:
        """Return the kept rows, one tensor per column."""
        return self._columns
