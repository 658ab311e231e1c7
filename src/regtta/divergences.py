"""Distances between distributions of features, as pure functions on tensors.

They are differentiable in every argument and keep its dtype. Those between Gaussians take the means and
variances of two Gaussians a dimension, all of one shape (K,), and give the distance of every dimension,
(K,).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regtta.decompositions import singular_vectors

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
    if metric == "kl" and not any(given.requires_grad for given in (mean0, variance0, weights)):
        loss: Tensor = _AlignedByKL.apply(values, mean0, variance0, weights, int(unbiased))
        return loss
    mean, variance = moments_with_memory(values, values[:0].detach(), unbiased=unbiased)
    return (weights * METRICS[metric](mean, variance, mean0, variance0)).sum()


class _AlignedByKL(torch.autograd.Function):
    """The weighted symmetric KL divergence of a batch's moments, with its gradient in closed form.

    ``∂L/∂m = α (m−m₀)(1/s + 1/s₀)`` and ``∂L/∂s = ½ α (1/s₀ − ((m−m₀)² + s₀)/s²)``: a third of what autograd does for
    the same, which is most of a step of a small model.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, *given: Any) -> Tensor:
        mean0, variance0, weights, correction = given
        # By hand: torch's variance over rows takes five times as long on a CPU.
        mean = values.mean(dim=0)
        centred = values - mean
        variance = (centred * centred).sum(dim=0) / (len(values) - correction)
        gap = mean - mean0
        square = gap * gap
        inverse, inverse0 = variance.reciprocal(), variance0.reciprocal()
        far = (square + variance0) * inverse
        ctx.correction = correction
        slope = weights * gap * (inverse + inverse0)
        slope_of_variance = weights * (inverse0 - far * inverse)
        ctx.save_for_backward(centred, slope, slope_of_variance)
        loss: Tensor = (weights * (torch.addcmul(far, square + variance, inverse0) - 2)).sum() / 2
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        centred, slope, slope_of_variance = ctx.saved_tensors
        count = len(centred)
        by_variance = slope_of_variance * (gradient / (count - ctx.correction))
        return torch.addcmul(slope * (gradient / count), centred, by_variance), None, None, None, None


def moments_with_memory(values: Tensor, past: Tensor, *, unbiased: bool = True) -> tuple[Tensor, Tensor]:
    """Mean and variance (K,) of ``past`` (P, K) and ``values`` (B, K) together, differentiable in the values.

    Past samples were made by the same model and would move with it as these do. So the batch stands for all of them:
    the gradient is that of a batch of P + B samples like these, ``∂mean/∂v = 1/B`` and
    ``∂variance/∂v = 2 (v − mean) / B``, rather than B/(P+B) of it. Without a past it is the ordinary one.

    Example:
        >>> v = torch.tensor([[3.0]], requires_grad=True)
        >>> mean, variance = moments_with_memory(v, torch.tensor([[1.0]]))
        >>> (mean + variance).sum().backward()
        >>> mean.item(), variance.item(), v.grad.item()
        (2.0, 2.0, 5.0)
    """
    correction = 1 if unbiased else 0
    if len(past) == 0:
        return values.mean(dim=0), values.var(dim=0, correction=correction)
    together = torch.cat([past, values.detach()])
    mean, variance = together.mean(dim=0), together.var(dim=0, correction=correction)
    scale = len(together) / (len(together) - correction)
    square = scale * ((values - mean) ** 2).mean(dim=0)
    centre = values.mean(dim=0)
    return mean + (centre - centre.detach()), variance + (square - square.detach())


def soft_histogram(values: Tensor, low: Tensor, high: Tensor, bins: int, temperature: float) -> Tensor:
    """Bin probabilities (K, bins) of each column of ``values`` (B, K), differentiable in the values.

    A value ``u`` in [0, 1], scaled by its column's range ``low..high`` (K,), belongs to bin j of n with
    ``softmax_j((j·u − Σ_{i<j} i/n) / temperature)``, j = 1..n: as the temperature falls, to the one bin it lies
    in. Values beyond the range belong to the outermost bins.

    Example:
        >>> values = torch.tensor([[0.1], [0.2], [0.9], [7.0]])
        >>> soft_histogram(values, torch.zeros(1), torch.ones(1), 2, 0.01)
        tensor([[0.5000, 0.5000]])
    """
    scaled = ((values - low) / (high - low)).unsqueeze(-1)
    steps = torch.arange(bins, dtype=values.dtype, device=values.device)
    edges = (steps / bins).cumsum(0)
    return torch.softmax((steps * scaled - edges) / temperature, dim=-1).mean(dim=0)


def histogram_divergence(histogram: Tensor, histogram0: Tensor, epsilon: float) -> Tensor:
    """KL(p‖q) + KL(q‖p) = ``Σ_j (p_j − q_j) log(p_j / q_j)`` of each row of bin probabilities (K, bins).

    ``epsilon`` is added to every probability: an empty bin has no logarithm.

    Example:
        >>> p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
        >>> histogram_divergence(p, q, 0.0)
        tensor([0.2747])
    """
    p, q = histogram + epsilon, histogram0 + epsilon
    return ((p - q) * (p.log() - q.log())).sum(dim=-1)


def subspace_distance(basis: Tensor, basis0: Tensor) -> tuple[Tensor, Tensor]:
    """How far two subspaces, spanned by orthonormal columns (D, n), are apart; two scalars.

    With ``basisᵀ basis0 = P cos(Θ) Qᵀ``: the sum of the sines of the principal angles Θ, and the mismatch of the
    bases themselves, ``‖|P| − |Q|‖_F``. Gradients are finite everywhere: a direction that both subspaces share has the
    angle 0, where the sine of the angle has a kink and its gradient is taken as 0.

    Example:
        >>> x, y = torch.eye(3)[:, :1], torch.eye(3)[:, 1:2]
        >>> [round(value.item(), 3) for value in subspace_distance(x, y)]
        [1.0, 0.0]
    """
    product = basis.T @ basis0
    p, _, q = singular_vectors(product)
    # The sines are the singular values of what lies outside of the other subspace; 1 − cos² would have no digits left
    # for small angles. The slope of a singular value does not depend on how its vectors turn.
    sines = torch.linalg.vector_norm((basis0 - basis @ product) @ q.detach(), dim=0)
    rounding = 4 * len(sines) * torch.finfo(sines.dtype).eps
    sines = torch.where(sines > rounding, sines, sines.detach())
    mismatch: Tensor = torch.linalg.matrix_norm(p.abs() - q.abs())
    return sines.sum(), mismatch


def entropy(logits: Tensor) -> Tensor:
    """Entropy (B,) of the class probabilities that logits (B, C) stand for: ``−Σ_c p_c log p_c``.

    Example:
        >>> entropy(torch.zeros(1, 4)).exp()
        tensor([4.])
    """
    logs = torch.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)
