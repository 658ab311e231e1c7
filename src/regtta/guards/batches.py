"""Guards against batches that no method can learn from."""

from dataclasses import dataclass
from typing import ClassVar

from regtta.guards.base import Exclusion, Guard, GuardContext, GuardState, IncomingBatch
from regtta.options import check_count


@dataclass(frozen=True)
class FiniteInputs(Guard):
    """Guard that excludes samples with NaN or infinite values.

    Example:
        >>> from torch import tensor
        >>> batch = IncomingBatch(tensor([[1.0], [float("nan")]]), lambda *_: None)
        >>> FiniteInputs().exclude_rows(batch)
        Exclusion(rows=tensor([False,  True]), reason='1 of 2 samples is not finite')
    """

    def exclude_rows(self, batch: IncomingBatch) -> Exclusion | None:
        """Return the samples that are not finite."""
        rows = batch.not_finite
        if rows is None:
            return None
        return Exclusion(rows, counted(int(batch.processes.reduce(rows.sum())), batch.size, "not finite"))


@dataclass(frozen=True)
class SeveralSamples(Guard):
    """Guard that rejects batches of too few samples.

    Args:
        least: smallest batch size; ``None`` for 2, since a single sample has no variance. For methods that keep a
            window of past samples, the smallest batch size is 1.
    """

    least: int | None = None

    def __post_init__(self) -> None:
        """Validate fields."""
        if self.least is not None:
            check_count("least", self.least)

    def start(self, context: GuardContext) -> GuardState:
        """Return the guard with the smallest batch size of the method, which is 1 if the method keeps a window."""
        return self if self.least is not None and context.smallest > 1 else SeveralSamples(context.smallest)

    def before_step(self, batch: IncomingBatch) -> str | None:
        """Reject the batch if it has too few samples."""
        found, least = batch.size, 2 if self.least is None else self.least
        if found >= least:
            return None
        return f"a batch of {found} has no variance" if found < 2 else f"a batch of {found} is fewer than {least}"


@dataclass(frozen=True)
class VariedInputs(Guard):
    """Guard that rejects batches of two or more samples that are all equal."""

    unusable: ClassVar[bool] = True

    def before_step(self, batch: IncomingBatch) -> str | None:
        """Reject the batch if all samples equal the first."""
        return "all samples are the same" if batch.size > 1 and not batch.varied else None


def counted(found: int, size: int, what: str) -> str:
    """Return a description of the number of samples of a batch that are ``what``.

    Example:
        >>> counted(1, 8, "not finite")
        '1 of 8 samples is not finite'
    """
    return f"{found} of {size} samples {'is' if found == 1 else 'are'} {what}"
