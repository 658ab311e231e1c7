"""Count, mean and scatter of a stream of vectors, in float64, in memory independent of its length."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.errors import StatisticsError
from regtta.processes import Processes

# Rows multiplied at once. Enough that a product costs more than its start; on a GPU more, since starting costs more.
BLOCK_ROWS, BLOCK_ROWS_ON_GPU = 1024, 4096


@dataclass(frozen=True)
class Moments:
    """What a stream of vectors leaves behind.

    Attributes:
        count: how many vectors.
        mean: (D,) float64.
        scatter: (D, D) float64, ``Σ (z−μ)(z−μ)ᵀ``.

    Example:
        >>> halves = Moments.of(torch.tensor([[0.0], [2.0]])), Moments.of(torch.tensor([[4.0]]))
        >>> whole = halves[0].merge(halves[1])
        >>> whole.count, whole.mean.item(), whole.covariance().item()
        (3, 2.0, 4.0)
    """

    count: int
    mean: Tensor
    scatter: Tensor

    @classmethod
    def of(cls, features: Tensor) -> "Moments":
        """Moments of one batch (B, D), centred before it is squared so that no digits cancel."""
        features = features.to(_home(features.device), torch.float64)
        mean = features.mean(dim=0)
        centred = features - mean
        return cls(len(features), mean, centred.T @ centred)

    def merge(self, other: "Moments") -> "Moments":
        """Moments of both streams together (the pairwise update of Chan, Golub and LeVeque)."""
        count = self.count + other.count
        gap = other.mean.to(self.mean.device) - self.mean
        scatter = self.scatter + other.scatter.to(self.scatter.device)
        scatter += torch.outer(gap, gap) * (self.count * other.count / count)
        return Moments(count, self.mean + gap * (other.count / count), scatter)

    def covariance(self) -> Tensor:
        """(D, D) unbiased covariance, where the moments lie."""
        if self.count < 2:
            raise StatisticsError(
                f"Expected at least 2 source samples for a covariance, found {self.count}. Collect over more data."
            )
        return self.scatter / (self.count - 1)


def moments_of_all(moments: Moments | None, processes: Processes, device: torch.device) -> Moments | None:
    """Moments of what all processes have seen together, the same in each; ``None`` where none has seen anything.

    Args:
        moments: of what this process has seen; ``None`` for nothing.
        processes: all of them. None holds another's scatter: each corrects its own to the common mean.
        device: where this process works; the same arithmetic follows for one that has seen nothing.
    """
    if processes.size == 1:
        return moments
    count = int(processes.reduce(torch.tensor(0 if moments is None else moments.count)))
    width = int(processes.reduce(torch.tensor(0 if moments is None else len(moments.mean)), "max"))
    if count == 0:
        return None
    if moments is None:
        nothing = torch.zeros(width, width, dtype=torch.float64, device=_home(device))
        moments = Moments(0, nothing[0], nothing)
    mean = processes.reduce(moments.mean * (moments.count / count))
    gap = moments.mean - mean
    return Moments(count, mean, processes.reduce(torch.addr(moments.scatter, gap, gap, alpha=moments.count)))


class RunningMoments:
    """Moments of a stream as it goes, in place: nothing of size (D, D) is made after the first batch.

    Rows are gathered into a block, and the block is multiplied with itself once it is full. On a GPU nothing is
    waited for.

    Attributes:
        count: vectors so far.

    Example:
        >>> running = RunningMoments()
        >>> for batch in torch.tensor([[0.0], [2.0], [4.0]]).split(1):
        ...     running.add(batch)
        >>> moments = running.finish()
        >>> moments.count, moments.mean.item(), moments.covariance().item()
        (3, 2.0, 4.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self._filled = 0
        self._block: Tensor | None = None

    def add(self, features: Tensor) -> None:
        """Take in a batch (B, D), which is copied at once."""
        features = features.detach()
        block = self._begin(features) if self._block is None else self._block
        room = len(block) - self._filled
        while len(features) >= room:
            block[self._filled :].copy_(features[:room])
            self._multiply(block)
            features, room = features[room:], len(block)
        if len(features):
            block[self._filled : self._filled + len(features)].copy_(features)
            self._filled += len(features)

    def finish(self) -> Moments | None:
        """Moments of all that was added, or ``None`` for nothing; a new stream may follow."""
        if self._block is None:
            return None
        if self._filled:
            self._multiply(self._block[: self._filled])
        scatter = self._scatter
        for start in range(0, len(scatter), self._width):
            end = start + self._width
            scatter[end:, start:end] = scatter[start:end, end:].T
        moments = Moments(self.count, self._reference + self._mean, scatter)
        self.count, self._block = 0, None
        return moments

    def _begin(self, features: Tensor) -> Tensor:
        home, columns = _home(features.device), features.shape[1]
        rows = BLOCK_ROWS if home.type == "cpu" else BLOCK_ROWS_ON_GPU
        self._block = torch.empty(rows, columns, dtype=torch.float64, device=home)
        self._mean = self._block.new_zeros(columns)
        self._scatter = self._block.new_zeros(columns, columns)
        # The scatter is symmetric. A CPU leaves half of it out, strip by strip; a GPU is quicker with one product.
        self._width = max(64, columns // 16) if home.type == "cpu" else columns
        # Where the first row lies is where all rows lie, more or less: around it little is lost to rounding.
        self._reference = features[0].to(home, torch.float64, copy=True)
        return self._block

    def _multiply(self, rows: Tensor) -> None:
        """Add the scatter of ``rows`` (n, D), which are used up, by the update of Chan, Golub and LeVeque.

        With N rows behind whose mean is μ, the n new ones add their own scatter and ``n·N/(n+N)`` times the square of
        the gap from μ to their mean. Rows shifted so that their mean is ``√(N/(n+N))`` times the gap have just that.
        """
        count = self.count + len(rows)
        rows -= self._reference
        mean = rows.mean(dim=0)
        gap = mean - self._mean
        rows -= mean - gap * math.sqrt(self.count / count)
        for start in range(0, rows.shape[1], self._width):
            strip = rows[:, start : start + self._width]
            self._scatter[start : start + self._width, start:].addmm_(strip.T, rows[:, start:])
        self._mean += gap * (len(rows) / count)
        self.count, self._filled = count, 0


def _home(device: torch.device) -> torch.device:
    """Where moments of features on ``device`` are kept: Apple's GPUs have no float64."""
    return torch.device("cpu") if device.type == "mps" else device
