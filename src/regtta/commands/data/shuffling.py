"""Shuffled data, held in memory."""

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
    """Rows of other data in shuffled order.

    Attributes:
        inputs: ``(N, ...)`` in the original order.
        targets: ``(N,)`` or ``(N, O)`` in the original order; ``None`` without labels.
        order: indices ``(N,)`` of the rows in shuffled order.
        batch_size: rows per batch.
        target_names: those of the original data.
        advice: that of the original data.
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
        """Number of rows N."""
        return len(self.order)

    def batches(self, deal: Deal = ALL) -> Iterator[LabelledBatch]:
        """Iterate over batches in shuffled order."""
        for rows in deal.of(torch.split(self.order, self.batch_size)):
            yield LabelledBatch(self.inputs[rows], None if self.targets is None else self.targets[rows])


def shuffle(data: Data, seed: int, batch_size: int) -> Shuffled:
    """Read ``data`` into memory and shuffle it with ``seed``."""
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
