"""Data in a seeded random order, held in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regtta.commands.data.batches import Data, LabelledBatch
from regtta.commands.data.dealing import ALL, Deal
from regtta.errors import BatchError


@dataclass(frozen=True, eq=False)
class Shuffled:
    """The rows of other data, visited in another order.

    Attributes:
        inputs: (N, ...) in the order of the rows.
        targets: (N,) or (N, O), or none.
        order: (N,) which row is visited when.
        batch_size: rows a batch.
        target_names: as in the data.
        advice: as in the data.
    """

    inputs: Tensor
    targets: Tensor | None
    order: Tensor
    batch_size: int
    target_names: tuple[str, ...]
    advice: str
    again: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        """N."""
        return len(self.order)

    def batches(self, deal: Deal = ALL) -> Iterator[LabelledBatch]:
        """One pass in the shuffled order."""
        for rows in deal.of(torch.split(self.order, self.batch_size)):
            yield LabelledBatch(self.inputs[rows], None if self.targets is None else self.targets[rows])


def shuffle(data: Data, seed: int, batch_size: int) -> Shuffled:
    """``data`` read into memory, its order drawn from ``seed``."""
    batches = list(data.batches())
    if not batches:
        raise BatchError("The data has no rows to shuffle.")
    inputs = torch.cat([batch.inputs for batch in batches])
    labels = [batch.targets for batch in batches if batch.targets is not None]
    generator = torch.Generator().manual_seed(seed)
    return Shuffled(
        inputs,
        torch.cat(labels) if labels else None,
        torch.randperm(len(inputs), generator=generator),
        batch_size,
        data.target_names,
        data.advice,
    )
