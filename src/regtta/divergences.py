"""Distances between one-dimensional Gaussians, as pure functions on tensors.

Each takes the means and variances of two Gaussians a dimension, all of one shape (K,), and gives
the distance of every dimension, (K,). They are differentiable in every argument and keep its dtype.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from torch import Tensor

Metric = Literal["kl", "w2", "l1"]
Divergence = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def symmetric_kl(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """KL(p‖q) + KL(q‖p) of Gaussians, in which the logarithms cancel.

    ``½ (((m−m₀)² + s)/s₀ + ((m−m₀)² + s₀)/s − 2)``

    Example:
        >>> from torch import tensor
        >>> symmetric_kl(tensor(1.0), tensor(2.0), tensor(0.0), tensor(1.0))
        tensor(1.)
    """
    square = (mean - mean0) ** 2
    return ((square + variance) / variance0 + (square + variance0) / variance - 2) / 2


def wasserstein2(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """Squared 2-Wasserstein distance of Gaussians: ``(m−m₀)² + (√s − √s₀)²``.

    Example:
        >>> from torch import tensor
        >>> wasserstein2(tensor(1.0), tensor(4.0), tensor(0.0), tensor(1.0))
        tensor(2.)
    """
    return (mean - mean0) ** 2 + (variance.sqrt() - variance0.sqrt()) ** 2


def l1(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """L1 distance of means and standard deviations: ``|m−m₀| + |√s − √s₀|``.

    Example:
        >>> from torch import tensor
        >>> l1(tensor(-1.0), tensor(9.0), tensor(0.0), tensor(1.0))
        tensor(3.)
    """
    return (mean - mean0).abs() + (variance.sqrt() - variance0.sqrt()).abs()


METRICS: Mapping[str, Divergence] = MappingProxyType({"kl": symmetric_kl, "w2": wasserstein2, "l1": l1})


def alignment_loss(
    values: Tensor,
    mean0: Tensor,
    variance0: Tensor,
    weights: Tensor,
    *,
    metric: Metric = "kl",
    unbiased: bool = True,
) -> Tensor:
    """Weighted distance of a batch's moments to given ones: ``Σ_d α_d · metric_d``, a scalar.

    Args:
        values: (B, K), one row a sample.
        mean0: (K,) means to align with.
        variance0: (K,) variances to align with.
        weights: (K,) the α of each dimension.
        metric: ``"kl"``, ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 rather than by B.

    Example:
        >>> from torch import tensor, zeros, ones
        >>> alignment_loss(tensor([[0.0], [2.0]]), zeros(1), 2 * ones(1), ones(1))
        tensor(0.5000)
    """
    mean = values.mean(dim=0)
    variance = values.var(dim=0, correction=1 if unbiased else 0)
    return (weights * METRICS[metric](mean, variance, mean0, variance0)).sum()
