"""Moments of what arrived lately: an exponential memory that knows how many samples stand behind it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class RecentMoments:
    """Moments of the samples of late, up to the covariance of their squares; older ones fade by ``exp(−age/memory)``.

    Memory is counted in samples, so that a stream is seen alike in small batches and in large ones. The sums are
    numpy's, on the CPU, where so few numbers cost less than in torch.

    Args:
        memory: samples after which one counts e times less.
        products: whether to keep the covariance of squares, (K, K), as well.

    Example:
        >>> recent = RecentMoments(memory=100)
        >>> for batch in torch.ones(200, 5, 3):
        ...     recent.add(batch)
        >>> recent.mean, 190 < recent.count < 210
        (tensor([1., 1., 1.], dtype=torch.float64), True)
    """

    def __init__(self, memory: float, *, products: bool = True) -> None:
        self.memory = memory
        self.products = products
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._weight = self._squared_weight = 0.0
        self._sums: NDArray[np.float64] | None = None

    def add(self, values: Tensor) -> None:
        """Take in a batch (B, K); samples that are not finite are left out."""
        rows = values.detach().to("cpu", torch.float64).numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            squares = rows * rows
            totals = squares.sum(axis=0)
            if not math.isfinite(totals.sum()):
                finite = np.isfinite(squares).all(axis=1)
                rows, squares = rows[finite], squares[finite]
                totals = squares.sum(axis=0)
            if len(rows) == 0:
                return
            # Samples of one batch are of one age: a batch far longer than the memory would else be lost but for its
            # end.
            fading = math.exp(-len(rows) / self.memory)
            sums = self._faded(fading, rows.shape[1])
            sums[0] += rows.sum(axis=0)
            sums[1] += totals
            if self.products:
                sums[2:] += _product(squares)
        self._weight = self._weight * fading + len(rows)
        self._squared_weight = self._squared_weight * fading**2 + len(rows)

    @property
    def count(self) -> float:
        """How many samples of equal weight would give means as certain as these: ``(Σw)² / Σw²``."""
        return self._weight**2 / self._squared_weight if self._squared_weight else 0.0

    @property
    def mean(self) -> Tensor:
        """(K,) ``E[y]``."""
        return self._moment(0)

    @property
    def square(self) -> Tensor:
        """(K,) ``E[y²]``."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """(K,) ``E[y²] − E[y]²``, at least 0."""
        return (self.square - self.mean**2).clamp_min(0)

    @property
    def covariance_of_squares(self) -> Tensor:
        """(K, K) of ``y²``: how uncertain the second moments are, and how much they vary together."""
        square = self._rows()[1] / self._weight
        with np.errstate(over="ignore", invalid="ignore"):
            return torch.from_numpy(self._rows()[2:] / self._weight - square[:, None] * square)

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered."""
        sums = torch.empty(0) if self._sums is None else torch.from_numpy(self._sums.copy())
        return {"weight": self._weight, "squared_weight": self._squared_weight, "sums": sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._weight, self._squared_weight = state["weight"], state["squared_weight"]
        sums = state["sums"]
        self._sums = sums.to("cpu", torch.float64, copy=True).numpy() if sums.numel() else None

    def _faded(self, fading: float, columns: int) -> NDArray[np.float64]:
        """The sums, those of before faded, to add to."""
        if self._sums is None:
            self._sums = np.zeros((2 + columns if self.products else 2, columns))
        else:
            self._sums *= fading
        return self._sums

    def _moment(self, row: int) -> Tensor:
        return torch.from_numpy(self._rows()[row] / self._weight)

    def _rows(self) -> NDArray[np.float64]:
        if self._sums is None:
            raise ValueError("Nothing has been added yet.")
        return self._sums


def _product(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K, K) ``rowsᵀ rows``, by torch: numpy would ask for more threads than torch was given."""
    given = torch.from_numpy(rows)
    product: NDArray[np.float64] = (given.T @ given).numpy()
    return product
