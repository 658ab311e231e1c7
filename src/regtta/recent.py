"""Moments of what arrived lately: an exponential memory that knows how many samples stand behind it."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regtta.state_validation import MOST_COUNTED, invalid, require_mapping, require_number, require_tensor


class RecentMoments:
    """Moments of the samples of late, up to the covariance of their squares; older ones fade by ``exp(−age/memory)``.

    Memory is counted in samples, so that a stream is seen alike in small batches and in large ones.

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
        self._sums: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Take in a batch (B, K); samples that are not finite are left out."""
        values = values.detach().double()
        squares = values * values
        totals = squares.sum(dim=0, keepdim=True)
        if not math.isfinite(float(totals.sum())):
            finite = squares.isfinite().all(dim=1)
            values, squares = values[finite], squares[finite]
            totals = squares.sum(dim=0, keepdim=True)
        if len(values) == 0:
            return
        # Samples of one batch are of one age: a batch far longer than the memory would else be lost but for its end.
        fading = math.exp(-len(values) / self.memory)
        rows = [values.sum(dim=0, keepdim=True), totals]
        sums = torch.cat([*rows, squares.T @ squares] if self.products else rows)
        self._sums = sums if self._sums is None else sums.add_(self._sums.to(sums.device), alpha=fading)
        self._weight = self._weight * fading + len(values)
        self._squared_weight = self._squared_weight * fading**2 + len(values)

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
        square = self.square
        return torch.addr(self._rows()[2:] / self._weight, square, square, alpha=-1)

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered."""
        sums = torch.empty(0) if self._sums is None else self._sums.clone()
        return {"weight": self._weight, "squared_weight": self._squared_weight, "sums": sums}

    def validate_state(self, state: object, path: str, width: int) -> None:
        """Raise a StateError unless ``state`` holds nothing yet, or moments of ``width`` values."""
        found = require_mapping(path, state, ("weight", "squared_weight", "sums"))
        weight = require_number(f"{path}/weight", found["weight"], least=0.0)
        squared = require_number(f"{path}/squared_weight", found["squared_weight"], least=0.0)
        sums = found["sums"]
        if isinstance(sums, Tensor) and sums.numel() == 0:
            if weight or squared:
                raise invalid(f"{path}/sums", f"the sums of samples of weight {weight:g}", sums)
            return
        require_tensor(f"{path}/sums", sums, (width + 2 if self.products else 2, width), torch.float64)
        require_tensor(f"{path}/sums", sums[1:], (None, width), torch.float64, least=0.0)  # of squares
        # The latest samples have weight 1, older ones less.
        if not 1 <= squared <= weight * (1 + 1e-9) <= MOST_COUNTED:
            raise invalid(f"{path}/squared_weight", f"from 1 to the weight {weight:g}", squared)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._weight, self._squared_weight = state["weight"], state["squared_weight"]
        self._sums = state["sums"].clone() if state["sums"].numel() else None

    def _moment(self, row: int) -> Tensor:
        return self._rows()[row] / self._weight

    def _rows(self) -> Tensor:
        if self._sums is None:
            raise ValueError("Nothing has been added yet.")
        return self._sums
