"""Count, mean and scatter of a stream of vectors, in float64, in memory independent of its length."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.errors import StatisticsError


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
        features = _double(features)
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
        """(D, D) unbiased covariance, on the CPU."""
        if self.count < 2:
            raise StatisticsError(
                f"Expected at least 2 source samples for a covariance, found {self.count}. Collect over more data."
            )
        return (self.scatter / (self.count - 1)).cpu()


def _double(features: Tensor) -> Tensor:
    # Apple's GPUs have no float64.
    return (features.cpu() if features.device.type == "mps" else features).double()
