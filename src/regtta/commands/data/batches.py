"""What every kind of data becomes: batches of inputs, with labels where they were asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from regtta.commands.data.dealing import ALL, Deal


@dataclass(frozen=True)
class LabelledBatch:
    """``inputs`` (B, ...), and ``targets`` (B,) or (B, O) for scoring, where there are any."""

    inputs: Tensor
    targets: Tensor | None = None


class Data(Protocol):
    """Batches that a command goes over, once or more often."""

    @property
    def target_names(self) -> tuple[str, ...]:
        """What the labels are called; empty where none were asked for."""

    @property
    def rows(self) -> int | None:
        """How many samples there are, where that is known beforehand."""

    @property
    def again(self) -> bool:
        """Whether :meth:`batches` can be called more than once."""

    @property
    def advice(self) -> str:
        """What to look at where the model cannot take these inputs."""

    def batches(self, deal: Deal = ALL) -> Iterator[LabelledBatch]:
        """One pass over the batches that ``deal`` takes, in the order of the rows."""
