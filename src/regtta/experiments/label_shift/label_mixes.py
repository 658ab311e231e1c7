"""Label shifts by resampling: sample weights that change the label distribution p(y) and not p(x | y)."""

from collections.abc import Mapping

import torch
from torch import Tensor

TILTS = (0.1, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5)
_SPREADS = {"narrower": 0.5, "wider": -0.3}
_BISECTIONS = 80
_STEEPEST = 60.0


def tilted(labels: Tensor, mean: float) -> Tensor:
    """Return weights ``(N,) ∝ exp(θ y)`` with mean label ``mean``: the closest to uniform in KL divergence.

    Example:
        >>> labels = torch.linspace(-2, 2, 401, dtype=torch.float64)
        >>> round(float(tilted(labels, 0.5) @ labels), 6)
        0.5
    """
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weights = torch.softmax(middle * labels, dim=0)
        low, high = (middle, high) if float(weights @ labels) < mean else (low, middle)
    return weights


def mixes(labels: Tensor) -> Mapping[str, Tensor]:
    """Return normalised weights ``(N,)`` by name: tilts of the mean, parts of the range, changes of the spread.

    Args:
        labels: ``(N,)`` labels standardised by the source.
    """
    made = {}
    for size in TILTS:
        for sign in (-1, 1):
            if float(labels.min()) < sign * size < float(labels.max()):
                made[f"mean {sign * size:+g} sd"] = tilted(labels, sign * size)
    low, middle, high = labels.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=labels.dtype))
    parts = {
        "lowest quarter": labels <= low,
        "lower half": labels <= middle,
        "lower three quarters": labels <= high,
        "upper three quarters": labels > low,
        "upper half": labels > middle,
        "highest quarter": labels > high,
        "middle half": (labels > low) & (labels <= high),
        "outer half": (labels <= low) | (labels > high),
    }
    made |= {name: part.to(labels.dtype) for name, part in parts.items()}
    made |= {name: torch.exp(-rate * (labels - labels.mean()) ** 2) for name, rate in _SPREADS.items()}
    return {name: weights / weights.sum() for name, weights in made.items()}


def one_class(labels: Tensor, value: float) -> Tensor:
    """Return weights ``(N,)`` that are uniform over the samples with label ``value`` and zero elsewhere."""
    chosen = (labels == value).double()
    return chosen / chosen.sum()
