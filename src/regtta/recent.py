"""Exponentially weighted moments of recent samples, with their effective sample size."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regtta.state_validation import MOST_COUNTED, invalid, require_mapping, require_number, require_tensor


class RecentMoments:
    """Exponentially weighted moments, up to the covariance of squares; weights decay as ``exp(−age/memory)``.

    Age is counted in samples, so that results hardly depend on the batch size.

    Args:
        memory: number of samples after which a weight has decayed by a factor of e.
        products: keep the covariance of squares, (K, K), as well.

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
        """Reset to the initial state without samples."""
        self._weight = self._squared_weight = 0.0
        self._sums: Tensor | None = None

    def add(self, values: Tensor) -> None:
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
        sums = torch.cat([*rows, squares.T @ squares] if self.products else rows)
        self._sums = sums if self._sums is None else sums.add_(self._sums.to(sums.device), alpha=decay)
        self._weight = self._weight * decay + len(values)
        self._squared_weight = self._squared_weight * decay**2 + len(values)

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
        weight = require_number(f"{path}/weight", found["weight"], least=0.0)
        squared = require_number(f"{path}/squared_weight", found["squared_weight"], least=0.0)
        sums = found["sums"]
        if isinstance(sums, Tensor) and sums.numel() == 0:
            if weight or squared:
                raise invalid(f"{path}/sums", f"the sums of samples of weight {weight:g}", sums)
            return
        require_tensor(f"{path}/sums", sums, (width + 2 if self.products else 2, width), torch.float64)
        require_tensor(f"{path}/sums", sums[1:], (None, width), torch.float64, least=0.0)  # sums of squares
        # The latest samples have weight 1, older ones a smaller one.
        if not 1 <= squared <= weight * (1 + 1e-9) <= MOST_COUNTED:
            raise invalid(f"{path}/squared_weight", f"from 1 to the weight {weight:g}", squared)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self._weight, self._squared_weight = state["weight"], state["squared_weight"]
        self._sums = state["sums"].clone() if state["sums"].numel() else None

    def _moment(self, row: int) -> Tensor:
        return self._rows()[row] / self._weight

    def _rows(self) -> Tensor:
        if self._sums is None:
            raise ValueError("Nothing has been added yet. Call add(values) first.")
        return self._sums
