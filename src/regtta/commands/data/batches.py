"""Interface of all data readers: batches of inputs with optional labels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from regtta.commands.data.dealing import ALL, Deal


@dataclass(frozen=True)
class LabelledBatch:
    """Batch of ``inputs`` ``(B, ...)`` and, if available, ``targets`` ``(B,)`` or ``(B, O)``."""

    inputs: Tensor
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
    def again(self) -> bool:
        """True if :meth:`batches` can be called more than once."""

    @property
    def advice(self) -> str:
        """Advice for the error message if the model rejects the inputs."""

    def batches(self, deal: Deal = ALL) -> Iterator[LabelledBatch]:
        """Iterate once over the batches that ``deal`` selects, in the order of the rows."""
