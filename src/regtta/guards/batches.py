"""Guards against batches that cannot be learned from, whatever the method."""

from dataclasses import dataclass
from typing import ClassVar

from regtta.guards.base import Arrival, Exclusion, Guard, Post, Watch
from regtta.options import check_count


@dataclass(frozen=True)
class FiniteInputs(Guard):
    """Leaves out samples with a NaN or an infinity in them.

    Example:
        >>> from torch import tensor
        >>> arrival = Arrival(tensor([[1.0], [float("nan")]]), lambda *_: None)
        >>> FiniteInputs().exclude_rows(arrival)
        Exclusion(rows=tensor([False,  True]), reason='1 of 2 samples is not finite')
    """

    def exclude_rows(self, arrival: Arrival) -> Exclusion | None:
        """Name the samples that are not finite."""
        rows = arrival.not_finite
        if rows is None:
            return None
        return Exclusion(rows, counted(int(arrival.processes.reduce(rows.sum())), arrival.size, "not finite"))


@dataclass(frozen=True)
class SeveralSamples(Guard):
    """Refuses a batch of too few samples.

    Args:
        least: how many it takes; ``None`` for 2, since one sample has no variance. A method that keeps a window learns
            from batches of any size, and this asks no more of it than one sample.
    """

    least: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.least is not None:
            check_count("least", self.least)

    def start(self, post: Post) -> Watch:
        """Settle how many it takes: a method that learns from one sample has its own memory."""
        return self if self.least is not None and post.smallest > 1 else SeveralSamples(post.smallest)

    def admits(self, arrival: Arrival) -> str | None:
        """Count the samples."""
        found, least = arrival.size, 2 if self.least is None else self.least
        if found >= least:
            return None
        return f"a batch of {found} has no variance" if found < 2 else f"a batch of {found} is fewer than {least}"


@dataclass(frozen=True)
class VariedInputs(Guard):
    """Refuses a batch whose samples, two or more, are all the same."""

    unusable: ClassVar[bool] = True

    def admits(self, arrival: Arrival) -> str | None:
        """Compare every sample with the first."""
        return "all samples are the same" if arrival.size > 1 and not arrival.varied else None


def counted(found: int, size: int, what: str) -> str:
    """Return a sentence on how many samples of a batch are ``what``.

    Example:
        >>> counted(1, 8, "not finite")
        '1 of 8 samples is not finite'
    """
    return f"{found} of {size} samples {'is' if found == 1 else 'are'} {what}"
