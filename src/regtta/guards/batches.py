"""Guards against batches that cannot be learned from, whatever the method."""

from dataclasses import dataclass
from typing import ClassVar

from regtta.guards.base import Exclusion, Guard, GuardContext, GuardState, IncomingBatch
from regtta.options import check_count


@dataclass(frozen=True)
class FiniteInputs(Guard):
    """Leaves out samples with a NaN or an infinity in them.

    Example:
        >>> from torch import tensor
        >>> batch = IncomingBatch(tensor([[1.0], [float("nan")]]), lambda *_: None)
        >>> FiniteInputs().exclude_rows(batch)
        Exclusion(rows=tensor([False,  True]), reason='1 of 2 samples is not finite')
    """

    def exclude_rows(self, batch: IncomingBatch) -> Exclusion | None:
        """Name the samples that are not finite."""
        rows = batch.not_finite
        if rows is None:
            return None
        return Exclusion(rows, counted(int(batch.processes.reduce(rows.sum())), batch.size, "not finite"))


@dataclass(frozen=True)
class SeveralSamples(Guard):
    """Refuses a batch of too few samples.

    Args:
        least: how many it takes; ``None`` for 2, since one sample has no variance. A method that keeps a window learns
            from batches of any size, and this asks no more of it than one sample.
    """

    least: int | None = None

    def __post_init__(self) -> None:
        """Validate fields."""
        if self.least is not None:
            check_count("least", self.least)

    def start(self, context: GuardContext) -> GuardState:
        """Settle how many it takes: a method that learns from one sample has its own memory."""
        return self if self.least is not None and context.smallest > 1 else SeveralSamples(context.smallest)

    def before_step(self, batch: IncomingBatch) -> str | None:
        """Count the samples."""
        found, least = batch.size, 2 if self.least is None else self.least
        if found >= least:
            return None
        return f"a batch of {found} has no variance" if found < 2 else f"a batch of {found} is fewer than {least}"


@dataclass(frozen=True)
class VariedInputs(Guard):
    """Refuses a batch whose samples, two or more, are all the same."""

    unusable: ClassVar[bool] = True

    def before_step(self, batch: IncomingBatch) -> str | None:
        """Compare every sample with the first."""
        return "all samples are the same" if batch.size > 1 and not batch.varied else None


def counted(found: int, size: int, what: str) -> str:
    """Return a sentence on how many samples of a batch are ``what``.

    Example:
        >>> counted(1, 8, "not finite")
        '1 of 8 samples is not finite'
    """
    return f"{found} of {size} samples {'is' if found == 1 else 'are'} {what}"
