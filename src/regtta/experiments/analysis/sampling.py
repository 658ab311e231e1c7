"""Some rows of a stream at random, in bounded memory."""

import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.options import check_count


class Reservoir:
    """Keeps up to ``most`` rows of all that it sees, each with the same chance, in the order they came.

    Args:
        most: rows to keep.
        seed: of the draw.

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
        """Take in a batch: tensors (B, ...) of the same rows, as many each time."""
        count = len(columns[0])
        if any(len(column) != count for column in columns) or len(columns) != len(self._columns or columns):
            raise BatchError("Expected as many columns as before, all with the same rows.")
        self.seen += count
        draws = torch.cat([self._draws, torch.rand(count, generator=self._generator, dtype=torch.float64)])
        # The rows of the smallest draws stay; who is pushed out once can never come back.
        kept = draws.argsort(stable=True)[: self._most].sort().values
        before = len(self._draws)
        self._draws = draws[kept]
        old = self._columns or [column[:0].detach().cpu() for column in columns]
        self._columns = [
            torch.cat([mine[kept[kept < before]], new.detach().cpu()[kept[kept >= before] - before]])
            for mine, new in zip(old, columns, strict=True)
        ]

    def rows(self) -> list[Tensor]:
        """The rows kept, a tensor for each column."""
        return self._columns
