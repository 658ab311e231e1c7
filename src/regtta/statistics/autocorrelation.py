"""Autocorrelation of a stream of vectors, and the effective sample size that it leaves.

The mean of n samples of a stationary series has the variance ``σ² τ / n`` with the integrated autocorrelation time
``τ = 1 + 2 Σ_l ρ(l)``. Tests that assume independent samples therefore need ``n / τ`` in place of n. For a first-order
autoregressive series of coefficient φ, ``τ = (1 + φ) / (1 − φ)``.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regtta.persistence import require_count, require_mapping, require_number, require_tensor

CHUNK = 256  # samples that are added at once
LAGS = (1, 2, 4, 8, 16, 32, 64)
MAX_TIME = 256.0  # bound of the estimate, a few times the longest lag
STANDARD_ERRORS = 3.0  # smaller autocorrelations count as 0, so that independent samples have a time of 1
_TINY = 1e-9


class EwmaAutocorrelation:
    """Exponentially weighted autocorrelations of a stream of vectors at the lags 1, 2, 4, ..., 64.

    Samples are taken in their order, across the borders of batches. Weights decay as ``exp(−age/memory)``.

    Args:
        width: number of values K per sample.
        memory: number of samples after which a weight has decayed by a factor of e.

    Example:
        >>> recent = EwmaAutocorrelation(1)
        >>> recent.update(torch.randn(4000, 1, generator=torch.Generator().manual_seed(0)))
        >>> recent.time()
        tensor([1.], dtype=torch.float64)
        >>> recent.update(torch.arange(4000.0).div(100).sin()[:, None])
        >>> float(recent.time()) > 100
        True
    """

    def __init__(self, width: int, memory: float = 1024) -> None:
        self.width = width
        self.memory = memory
        self.reset()

    def reset(self) -> None:
        """Reset to the initial state without samples."""
        self.samples = 0  # of the last max(LAGS), how many have been seen
        self._pending: list[Tensor] = []
        self._time: Tensor | None = None
        self._tail = torch.zeros(LAGS[-1], self.width, dtype=torch.float64)
        self._sums = torch.zeros(2 + len(LAGS), self.width, dtype=torch.float64)
        self._weights = torch.zeros(1 + len(LAGS), dtype=torch.float64)
        self._squared_weight = 0.0

    def update(self, values: Tensor) -> None:
        """Update with a batch (B, K) in its order; samples that are not finite are ignored.

        Batches are collected until they have 256 samples, since sums of few samples cost as much as of many.
        """
        self._pending.append(values.detach().double())
        if sum(map(len, self._pending)) >= CHUNK:
            self._add_pending()

    def _add_pending(self) -> None:
        values = torch.cat(self._pending) if self._pending else self._tail[:0]
        self._pending = []
        squares = values * values
        if not math.isfinite(float(squares.sum())):
            finite = squares.isfinite().all(dim=1)
            values, squares = values[finite], squares[finite]
        count, longest = len(values), LAGS[-1]
        if count == 0:
            return
        rows = torch.cat([self._tail.to(values.device), values])
        # Rows before the first sample are zeros and add nothing.
        lagged = torch.stack([(values * rows[longest - lag : longest - lag + count]).sum(dim=0) for lag in LAGS])
        sums = torch.cat([values.sum(dim=0, keepdim=True), squares.sum(dim=0, keepdim=True), lagged])
        pairs = [max(0, count - max(0, lag - self.samples)) for lag in LAGS]
        decay = math.exp(-count / self.memory)
        self._time = None
        self._sums = sums.add_(self._sums.to(sums.device), alpha=decay)
        self._weights = self._weights * decay + torch.tensor([count, *pairs], dtype=torch.float64)
        self._squared_weight = self._squared_weight * decay**2 + count
        self._tail = rows[-longest:].clone()
        self.samples = min(longest, self.samples + count)

    @property
    def count(self) -> float:
        """Effective number of the samples that have been added, ``(Σw)² / Σw²``."""
        weight = float(self._weights[0])
        return weight**2 / self._squared_weight if self._squared_weight else 0.0

    def autocorrelations(self) -> Tensor:
        """Return the autocorrelations (7, K) at the lags 1, 2, 4, ..., 64; 0 where there are too few samples.

        Samples that are still collected are added first.
        """
        self._add_pending()
        return self._autocorrelations()

    def _autocorrelations(self) -> Tensor:
        weights = self._weights.to(self._sums.device)
        mean, square = self._sums[:2] / weights[0].clamp_min(1)
        variance = (square - mean**2).clamp_min(1e-300)
        covariances: Tensor = self._sums[2:] / weights[1:, None].clamp_min(1) - mean**2
        return torch.where(weights[1:, None] > 0, covariances / variance, 0.0)

    def time(self) -> Tensor:
        """Return the integrated autocorrelation time τ (K,), from 1 to 256.

        Autocorrelations between the lags are interpolated geometrically, which is exact for a first-order
        autoregressive series. Those below three standard errors, and all at longer lags, are taken as 0. The latest
        samples, fewer than 256, may not be included yet.
        """
        if not self._squared_weight:
            self._add_pending()
        if self._time is None:
            pairs = self.count * self._weights[1:] / self._weights[0].clamp_min(1)
            self._time = integrated_time(self._autocorrelations(), pairs)
        return self._time

    def state_dict(self) -> dict[str, Any]:
        """Return the state, to be restored by :meth:`load_state_dict`."""
        pending = torch.cat(self._pending) if self._pending else self._tail[:0]
        return {
            "pending": pending.clone(),
            "samples": self.samples,
            "tail": self._tail.clone(),
            "sums": self._sums.clone(),
            "weights": self._weights.clone(),
            "squared_weight": self._squared_weight,
        }

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns."""
        found = require_mapping(path, state, ("pending", "samples", "tail", "sums", "weights", "squared_weight"))
        require_tensor(f"{path}/pending", found["pending"], (None, self.width), torch.float64)
        require_count(f"{path}/samples", found["samples"], maximum=LAGS[-1])
        require_tensor(f"{path}/tail", found["tail"], (LAGS[-1], self.width), torch.float64)
        require_tensor(f"{path}/sums", found["sums"], (2 + len(LAGS), self.width), torch.float64)
        require_tensor(f"{path}/weights", found["weights"], (1 + len(LAGS),), torch.float64, minimum=0.0)
        require_number(f"{path}/squared_weight", found["squared_weight"], minimum=0.0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`."""
        self.samples, self._squared_weight = state["samples"], state["squared_weight"]
        self._time = None
        self._pending = [state["pending"].clone()] if len(state["pending"]) else []
        self._tail, self._sums = state["tail"].clone(), state["sums"].clone()
        self._weights = state["weights"].clone().cpu()


def integrated_time(autocorrelations: Tensor, pairs: Tensor) -> Tensor:
    """Return the integrated autocorrelation time (K,) from autocorrelations (7, K) at the lags 1, 2, 4, ..., 64.

    Args:
        autocorrelations: autocorrelations at the lags.
        pairs: number of pairs of samples (7,) behind those of each lag.
    """
    found = autocorrelations.clamp_max(1.0)
    threshold = (STANDARD_ERRORS / pairs.clamp_min(1).sqrt()).to(found.device)
    significant = (found > threshold[:, None]).cumprod(dim=0).bool()
    total = torch.zeros_like(found[0])
    for number, lag in enumerate(LAGS if bool(significant.any()) else ()):
        here, last = found[number].clamp_min(_TINY), lag == LAGS[-1]
        ratio = here.pow(1 / lag)  # decay per sample from lag 0 to here, unless the next lag is known
        if not last:
            to_next = (found[number + 1] / here).clamp(_TINY, 1).pow(1 / lag)
            ratio = torch.where(significant[number + 1], to_next, ratio)
        terms = MAX_TIME if last else lag
        total += torch.where(significant[number], here * _geometric_sum(ratio, terms), 0.0)
    return (1 + 2 * total).clamp(1.0, MAX_TIME)


def _geometric_sum(ratio: Tensor, terms: float) -> Tensor:
    """Return ``Σ_{l < terms} ratio^l`` for ratios from 0 to 1."""
    return torch.where(ratio > 1 - _TINY, terms, (1 - ratio**terms) / (1 - ratio).clamp_min(_TINY))
