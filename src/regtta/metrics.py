"""Streaming regression metrics: R², RMSE, MAE and Pearson's r, in float64.

Implemented here because the core depends on torch, safetensors and numpy only; tests compare them with scikit-learn.
"""

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from regtta.errors import BatchError


@dataclass(frozen=True)
class Scores:
    """Metrics over ``count`` samples, averaged over outputs."""

    r2: float
    rmse: float
    mae: float
    pearson: float
    count: int

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the scores as a dict for JSON, with ``None`` for values that are not finite."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


class RegressionMetrics:
    """Streaming regression metrics, in memory independent of the number of samples.

    ``R² = 1 − Σ(ŷ−y)² / Σ(y−ȳ)²``, ``RMSE = √mean (ŷ−y)²``, ``MAE = mean |ŷ−y|``, and Pearson's
    correlation. Each is computed per output and averaged over outputs. R² and Pearson's r of
    constant targets are NaN; all scores are NaN if a prediction is NaN.

    Example:
        >>> metrics = RegressionMetrics()
        >>> metrics.update(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))
        >>> metrics.update(torch.tensor([3.0]), torch.tensor([5.0]))
        >>> round(metrics.compute().r2, 3), round(metrics.compute().mae, 3)
        (0.538, 0.667)
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean: Tensor | None = None  # (2, O): means of targets and predictions
        self._scatter: Tensor | None = None  # (2, 2, O): centred products of targets and predictions
        self._errors: Tensor | None = None  # (2, O): sums of squared and of absolute errors

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Update with a batch of predictions and targets, both of shape (B,), (B, 1) or (B, O)."""
        if not _fit(predictions, targets):
            raise BatchError(
                f"Predictions of shape {tuple(predictions.shape)} do not fit targets of shape "
                f"{tuple(targets.shape)}. Pass one row per sample and one column per output in both."
            )
        values = torch.stack([_columns(targets), _columns(predictions)])
        count = values.shape[1]
        if count == 0:
            return
        mean = values.mean(dim=1)
        centred = values - mean.unsqueeze(1)
        scatter = torch.einsum("ibo,jbo->ijo", centred, centred)
        error = values[1] - values[0]
        self._add(count, mean, scatter, torch.stack([(error**2).sum(0), error.abs().sum(0)]))

    def merge(self, other: "RegressionMetrics") -> None:
        """Merge the samples of ``other`` into this metric."""
        if other._mean is not None and other._scatter is not None and other._errors is not None:
            self._add(other._count, other._mean, other._scatter, other._errors)

    def compute(self) -> Scores:
        """Return the scores of all samples so far."""
        if self._mean is None or self._scatter is None or self._errors is None:
            raise BatchError("No predictions to score yet. Call update(predictions, targets) first.")
        squared, absolute = self._errors
        target, prediction, cross = self._scatter[0, 0], self._scatter[1, 1], self._scatter[0, 1]
        target = torch.where(target > 0, target, torch.nan)
        return Scores(
            r2=float((1 - squared / target).mean()),
            rmse=float((squared / self._count).sqrt().mean()),
            mae=float((absolute / self._count).mean()),
            pearson=float((cross / (target * prediction).sqrt()).mean()),
            count=self._count,
        )

    def _add(self, count: int, mean: Tensor, scatter: Tensor, errors: Tensor) -> None:
        if self._mean is None or self._scatter is None or self._errors is None:
            self._count, self._mean, self._scatter, self._errors = count, mean, scatter, errors
            return
        total = self._count + count
        gap = mean - self._mean
        between = torch.einsum("io,jo->ijo", gap, gap) * (self._count * count / total)
        self._scatter = self._scatter + scatter + between
        self._mean = self._mean + gap * (count / total)
        self._errors = self._errors + errors
        self._count = total


def _fit(predictions: Tensor, targets: Tensor) -> bool:
    return (
        1 <= predictions.ndim <= 2 and 1 <= targets.ndim <= 2 and _columns(predictions).shape == _columns(targets).shape
    )


def _columns(values: Tensor) -> Tensor:
    """Return ``values`` as (B, O) float64 on the CPU."""
    values = values.detach().cpu().double()
    return values.unsqueeze(1) if values.ndim == 1 else values
