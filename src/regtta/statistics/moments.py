"""Moments of feature vectors: exact streaming sums with merging, and exponentially weighted moving averages."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.errors import StatisticsError
from regtta.execution import Communicator
from regtta.persistence import MAX_COUNT, require_mapping, require_number, require_tensor, state_error

# Rows per matrix product: enough to amortise the launch of a product, which costs more on a GPU.
BLOCK_ROWS, BLOCK_ROWS_ON_GPU = 1024, 4096


@dataclass(frozen=True)
class Moments:
    """First and second moments of a set of vectors.

    Attributes:
        count: number of vectors.
        mean: (D,) float64.
        scatter: (D, D) float64 scatter matrix, ``Σ (z−μ)(z−μ)ᵀ``.

    Example:
        >>> halves = Moments.from_features(torch.tensor([[0.0], [2.0]])), Moments.from_features(torch.tensor([[4.0]]))
        >>> whole = halves[0].merge(halves[1])
        >>> whole.count, whole.mean.item(), whole.covariance().item()
        (3, 2.0, 4.0)
    """

    count: int
    mean: Tensor
    scatter: Tensor

    @classmethod
    def from_features(cls, features: Tensor) -> "Moments":
        """Compute the moments of one batch (B, D), centred before squaring to avoid cancellation."""
        features = features.to(moments_device(features.device), torch.float64)
        mean = features.mean(dim=0)
        centred = features - mean
        return cls(len(features), mean, centred.T @ centred)

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of both sets together (the pairwise update of Chan, Golub and LeVeque)."""
        count = self.count + other.count
        gap = other.mean.to(self.mean.device) - self.mean
        scatter = self.scatter + other.scatter.to(self.scatter.device)
        scatter += torch.outer(gap, gap) * (self.count * other.count / count)
        return Moments(count, self.mean + gap * (other.count / count), scatter)

    def covariance(self) -> Tensor:
        """Return the unbiased covariance (D, D), on the device of the moments."""
        if self.count < 2:
            raise StatisticsError(
                f"Expected at least 2 source samples for a covariance, found {self.count}. Collect over more data."
            )
        return self.scatter / (self.count - 1)


def all_reduce_moments(moments: Moments | None, processes: Communicator, device: torch.device) -> Moments | None:
    """Return the moments over all processes, identical in each; ``None`` if none has any samples.

    Each process corrects its own scatter to the common mean, so that scatter matrices are summed and never gathered.

    Args:
        moments: moments of this process's samples; ``None`` if it has none.
        processes: the participating processes.
        device: device of this process, where one without samples allocates its zeros.
    """
    if processes.size == 1:
        return moments
    count = int(processes.reduce(torch.tensor(0 if moments is None else moments.count)))
    width = int(processes.reduce(torch.tensor(0 if moments is None else len(moments.mean)), "max"))
    if count == 0:
        return None
    if moments is None:
        nothing = torch.zeros(width, width, dtype=torch.float64, device=moments_device(device))
        moments = Moments(0, nothing[0], nothing)
    mean = processes.reduce(moments.mean * (moments.count / count))
    gap = moments.mean - mean
    return Moments(count, mean, processes.reduce(torch.addr(moments.scatter, gap, gap, alpha=moments.count)))


class RunningMoments:
    """Streaming moments, updated in place: nothing of size (D, D) is allocated after the first batch.

    Rows are buffered in a block, whose scatter is added once the block is full. There is no GPU synchronisation.

    Attributes:
        count: number of vectors whose scatter has been added.

    Example:
        >>> running = RunningMoments()
        >>> for batch in torch.tensor([[0.0], [2.0], [4.0]]).split(1):
        ...     running.update(batch)
        >>> moments = running.finish()
        >>> moments.count, moments.mean.item(), moments.covariance().item()
        (3, 2.0, 4.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self._filled = 0
        self._block: Tensor | None = None

    def update(self, features: Tensor) -> None:
        """Update with a batch (B, D), which is copied immediately."""
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
        """Return the moments of all batches, ``None`` if there are none, and reset."""
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
        home, columns = moments_device(features.device), features.shape[1]
        rows = BLOCK_ROWS if home.type == "cpu" else BLOCK_ROWS_ON_GPU
        self._block = torch.empty(rows, columns, dtype=torch.float64, device=home)
        self._mean = self._block.new_zeros(columns)
        self._scatter = self._block.new_zeros(columns, columns)
        # The scatter is symmetric. A CPU computes half of it, strip by strip; a GPU is faster with one product.
        self._width = max(64, columns // 16) if home.type == "cpu" else columns
        # Rows are shifted by the first one, which is close to the mean, to reduce rounding errors.
        self._reference = features[0].to(home, torch.float64, copy=True)
        return self._block

    def _multiply(self, rows: Tensor) -> None:
        """Add the scatter of ``rows`` (n, D), which are overwritten, by the update of Chan, Golub and LeVeque.

        With N previous rows of mean μ, the n new ones add their own scatter and ``n·N/(n+N)`` times the outer product
        of the gap from μ to their mean. Rows shifted to a mean of ``√(N/(n+N))`` times the gap have exactly this sum
        of outer products.
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


def moments_device(device: torch.device) -> torch.device:
    """Return the device for the moments of features on ``device``: the CPU for MPS, which has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


class EwmaMoments:
    """Exponentially weighted moments, up to the covariance of squares; weights decay as ``exp(−age/memory)``.

    Age is counted in samples, so that results hardly depend on the batch size.

    Args:
        memory: number of samples after which a weight has decayed by a factor of e.
        products: keep the covariance of squares, (K, K), as well.

    Example:
        >>> recent = EwmaMoments(memory=100)
        >>> for batch in torch.ones(200, 5, 3):
        ...     recent.update(batch)
        >>> recent.mean, 190 < recent.count < 210
        (tensor([1., 1., 1.], dtype=torch.float64), True)
    """

    _squares_only: ClassVar[bool] = True  # the products that are kept are those of squares, and so not negative

    def __init__(self, memory: float, *, products: bool = True) -> None:
        self.memory = memory
        self.products = products
        self.reset()

    def reset(self) -> None:
        """Reset to the initial state without samples."""
        self._weight = self._squared_weight = 0.0
        self._sums: Tensor | None = None

    def update(self, values: Tensor) -> None:
        """Update with a batch (B, K); non-finite samples are ignored."""
        values = values.detach().double()
        squares = values * values
        totals = squares.sum(dim=0, keepdim=True)
        if not math.isfinite(float(totals.sum())):
            finite = squares.isfinite().all(dim=1)
            values, squares = values[finite], squares[finite]
            totals = squares.sum(dim=0, keepdim=True)
        if len(values) == 0:
            return
        # Samples of one batch have the same age: otherwise only the end of a batch far longer than the memory counts.
        decay = math.exp(-len(values) / self.memory)
        rows = [values.sum(dim=0, keepdim=True), totals]
        sums = torch.cat([*rows, self._products(values, squares)] if self.products else rows)
        self._sums = sums if self._sums is None else sums.add_(self._sums.to(sums.device), alpha=decay)
        self._weight = self._weight * decay + len(values)
        self._squared_weight = self._squared_weight * decay**2 + len(values)

    def _products(self, values: Tensor, squares: Tensor) -> Tensor:  # noqa: ARG002 - for subclasses
        return squares.T @ squares

    @property
    def count(self) -> float:
        """Effective sample size ``(Σw)² / Σw²``."""
        return self._weight**2 / self._squared_weight if self._squared_weight else 0.0

    @property
    def mean(self) -> Tensor:
        """Mean ``E[y]``, (K,)."""
        return self._moment(0)

    @property
    def square(self) -> Tensor:
        """Second moment ``E[y²]``, (K,)."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """Variance ``E[y²] − E[y]²``, (K,), at least 0."""
        return (self.square - self.mean**2).clamp_min(0)

    @property
    def covariance_of_squares(self) -> Tensor:
        """Covariance of ``y²``, (K, K), which determines the uncertainty of the second moments."""
        square = self.square
        return torch.addr(self._rows()[2:] / self._weight, square, square, alpha=-1)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, to be restored by :meth:`load_state_dict`."""
        sums = torch.empty(0) if self._sums is None else self._sums.clone()
        return {"weight": self._weight, "squared_weight": self._squared_weight, "sums": sums}

    def validate_state(self, state: object, path: str, width: int) -> None:
        """Raise a StateError unless ``state`` is empty or holds moments of ``width`` values."""
        found = require_mapping(path, state, ("weight", "squared_weight", "sums"))
        weight = require_number(f"{path}/weight", found["weight"], minimum=0.0)
        squared = require_number(f"{path}/squared_weight", found["squared_weight"], minimum=0.0)
        sums = found["sums"]
        if isinstance(sums, Tensor) and sums.numel() == 0:
            if weight or squared:
                raise state_error(f"{path}/sums", f"the sums of samples of weight {weight:g}", sums)
            return
        require_tensor(f"{path}/sums", sums, (width + 2 if self.products else 2, width), torch.float64)
        squares = sums[1:] if self._squares_only else sums[1:2]
        require_tensor(f"{path}/sums", squares, (None, width), torch.float64, minimum=0.0)
        # The latest samples have weight 1, older ones a smaller one.
        if not 1 <= squared <= weight * (1 + 1e-9) <= MAX_COUNT:
            raise state_error(f"{path}/squared_weight", f"from 1 to the weight {weight:g}", squared)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self._weight, self._squared_weight = state["weight"], state["squared_weight"]
        self._sums = state["sums"].clone() if state["sums"].numel() else None

    def _moment(self, row: int) -> Tensor:
        return self._rows()[row] / self._weight

    def _rows(self) -> Tensor:
        if self._sums is None:
            raise ValueError("Nothing has been added yet. Call update(values) first.")
        return self._sums


class EwmaCovariance(EwmaMoments):
    """Exponentially weighted mean and covariance; weights decay as in :class:`EwmaMoments`.

    Args:
        memory: number of samples after which a weight has decayed by a factor of e.

    Example:
        >>> recent = EwmaCovariance(memory=100)
        >>> recent.update(torch.tensor([[0.0, 1.0], [2.0, -1.0]]))
        >>> recent.covariance
        tensor([[ 1., -1.],
                [-1.,  1.]], dtype=torch.float64)
    """

    _squares_only: ClassVar[bool] = False

    def __init__(self, memory: float) -> None:
        super().__init__(memory)

    def _products(self, values: Tensor, squares: Tensor) -> Tensor:  # noqa: ARG002 - overrides
        return values.T @ values

    @property
    def covariance(self) -> Tensor:
        """Covariance ``E[y yᵀ] − E[y] E[y]ᵀ``, (K, K)."""
        mean = self.mean
        return torch.addr(self._rows()[2:] / self._weight, mean, mean, alpha=-1)
