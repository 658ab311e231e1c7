"""Distances between feature distributions, as pure functions on tensors.

All are differentiable in every argument and preserve its dtype. Distances between Gaussians take the means and
variances of two Gaussians per dimension, all of shape (K,), and return one distance per dimension, (K,).
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regtta.statistics import stable_svd

Metric = Literal["kl", "w2", "l1"]
Divergence = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def symmetric_kl(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """Return the symmetric KL divergence of Gaussians, KL(p‖q) + KL(q‖p), in which the logarithms cancel.

    ``½ (((m−m₀)² + s)/s₀ + ((m−m₀)² + s₀)/s − 2)``

    Example:
        >>> from torch import tensor
        >>> symmetric_kl(tensor(1.0), tensor(2.0), tensor(0.0), tensor(1.0))
        tensor(1.)
    """
    square = (mean - mean0) ** 2
    return ((square + variance) / variance0 + (square + variance0) / variance - 2) / 2


def wasserstein2(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """Return the squared 2-Wasserstein distance between Gaussians: ``(m−m₀)² + (√s − √s₀)²``.

    Example:
        >>> from torch import tensor
        >>> wasserstein2(tensor(1.0), tensor(4.0), tensor(0.0), tensor(1.0))
        tensor(2.)
    """
    return (mean - mean0) ** 2 + (variance.sqrt() - variance0.sqrt()) ** 2


def l1(mean: Tensor, variance: Tensor, mean0: Tensor, variance0: Tensor) -> Tensor:
    """Return the L1 distance between means and standard deviations: ``|m−m₀| + |√s − √s₀|``.

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
    """Return the weighted distance of a batch's moments to reference moments, a scalar: ``Σ_d α_d · metric_d``.

    Args:
        values: (B, K), one row per sample.
        mean0: (K,) means to align with.
        variance0: (K,) variances to align with.
        weights: (K,) weight α of each dimension.
        metric: ``"kl"``, ``"w2"`` or ``"l1"``.
        unbiased: divide the batch's variance by B−1 instead of B.

    Example:
        >>> from torch import tensor, zeros, ones
        >>> alignment_loss(tensor([[0.0], [2.0]]), zeros(1), 2 * ones(1), ones(1))
        tensor(0.5000)
    """
    if metric == "kl" and not any(given.requires_grad for given in (mean0, variance0, weights)):
        loss: Tensor = _KLAlignment.apply(values, mean0, variance0, weights, int(unbiased))
        return loss
    mean, variance = moments_with_memory(values, values[:0].detach(), unbiased=unbiased)
    return (weights * METRICS[metric](mean, variance, mean0, variance0)).sum()


class _KLAlignment(torch.autograd.Function):
    """Weighted symmetric KL divergence of a batch's moments, with its gradient in closed form.

    ``∂L/∂m = α (m−m₀)(1/s + 1/s₀)`` and ``∂L/∂s = ½ α (1/s₀ − ((m−m₀)² + s₀)/s²)``. This takes a third of autograd's
    operations, which otherwise dominate the step of a small model.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, *given: Any) -> Tensor:
        mean0, variance0, weights, correction = given
        # Written out, since torch.var over rows is five times slower on a CPU.
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
    """Return the joint mean and variance (K,) of ``past`` (P, K) and ``values`` (B, K), differentiable in ``values``.

    Past features came from the same model and would change with it as the current ones do. The gradient is therefore
    that of a batch of P + B samples like the current ones, ``∂mean/∂v = 1/B`` and ``∂variance/∂v = 2 (v − mean) / B``,
    instead of B/(P+B) of it. With an empty ``past`` it is the ordinary gradient.

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


def pair_means(mean: Tensor) -> Tensor:
    """Return ``qᵀμ`` (..., K, K) of means μ (..., K), for every q in e_i and (e_i ± e_j)/√2.

    Row i, column j holds q = (e_i + e_j)/√2 above the diagonal, (e_i − e_j)/√2 below it, and e_i on it.

    Example:
        >>> pair_means(torch.tensor([3.0, 1.0])) * 2**0.5
        tensor([[ 4.2426,  4.0000],
                [-2.0000,  1.4142]])
    """
    signs = _pair_signs(mean)
    sums: Tensor = mean.unsqueeze(-1) + signs * mean.unsqueeze(-2)
    return sums * (1 - (1 - math.sqrt(0.5)) * signs.abs())


def pair_variances(covariance: Tensor) -> Tensor:
    """Return ``qᵀΣq`` (K, K) of a covariance Σ (K, K), for every q in e_i and (e_i ± e_j)/√2, as :func:`pair_means`.

    ``(Σ_ii + Σ_jj ± 2 Σ_ij) / 2``. They determine Σ, as its quadratic form along every axis and diagonal.

    Example:
        >>> pair_variances(torch.tensor([[4.0, 1.0], [1.0, 2.0]]))
        tensor([[4., 4.],
                [2., 2.]])
    """
    diagonal = covariance.diagonal()
    return (diagonal.unsqueeze(1) + diagonal) / 2 + _pair_signs(diagonal) * covariance


def _pair_signs(values: Tensor) -> Tensor:
    """Return the sign (K, K) of the second axis in every pair of K axes: 1 above the diagonal, −1 below, 0 on it."""
    ones = values.new_ones(values.shape[-1], values.shape[-1])
    return ones.triu(1) - ones.tril(-1)


def soft_histogram(values: Tensor, low: Tensor, high: Tensor, bins: int, temperature: float) -> Tensor:
    """Return the bin probabilities (K, bins) of each column of ``values`` (B, K), differentiable in ``values``.

    A value ``u``, scaled to [0, 1] by its column's range ``low..high`` (K,), is assigned to bin j of n with probability
    ``softmax_j((j·u − Σ_{i<j} i/n) / temperature)``, j = 1..n. As the temperature decreases, this approaches a hard
    assignment. Values outside the range are assigned to the outermost bins.

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
    """Return the symmetric KL divergence (K,) of each row of bin probabilities (K, bins).

    ``KL(p‖q) + KL(q‖p) = Σ_j (p_j − q_j) log(p_j / q_j)``. ``epsilon`` is added to every probability, since the
    logarithm of an empty bin is undefined.

    Example:
        >>> p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
        >>> histogram_divergence(p, q, 0.0)
        tensor([0.2747])
    """
    p, q = histogram + epsilon, histogram0 + epsilon
    return ((p - q) * (p.log() - q.log())).sum(dim=-1)


def subspace_distance(basis: Tensor, basis0: Tensor) -> tuple[Tensor, Tensor]:
    """Return two distances, both scalars, between subspaces spanned by orthonormal columns (D, n).

    With ``basisᵀ basis0 = P cos(Θ) Qᵀ``: the sum of the sines of the principal angles Θ, and the mismatch of the
    bases themselves, ``‖|P| − |Q|‖_F``. Gradients are finite everywhere: for a direction shared by both subspaces the
    angle is 0, where the sine is not differentiable and its gradient is defined as 0.

    Example:
        >>> x, y = torch.eye(3)[:, :1], torch.eye(3)[:, 1:2]
        >>> [round(value.item(), 3) for value in subspace_distance(x, y)]
        [1.0, 0.0]
    """
    product = basis.T @ basis0
    p, _, q = stable_svd(product)
    # The sines are the singular values of the residual outside the other subspace; 1 − cos² would cancel for small
    # angles. The derivative of a singular value does not depend on the rotation of its vectors.
    sines = torch.linalg.vector_norm((basis0 - basis @ product) @ q.detach(), dim=0)
    rounding = 4 * len(sines) * torch.finfo(sines.dtype).eps
    sines = torch.where(sines > rounding, sines, sines.detach())
    mismatch: Tensor = torch.linalg.matrix_norm(p.abs() - q.abs())
    return sines.sum(), mismatch


def column_cosines(matrix: Tensor, matrix0: Tensor) -> Tensor:
    """Return the cosine (M,) of the angle between equal columns of two matrices (D, N), for the M that are not 0.

    Columns of ``matrix0`` that are 0 up to rounding are left out. A column of ``matrix`` that is 0 has no angle; its
    cosine and its gradient are 0.

    Example:
        >>> column_cosines(torch.tensor([[3.0, 1.0], [4.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        tensor([0.6000])
    """
    norms, norms0 = (torch.linalg.vector_norm(values, dim=0) for values in (matrix, matrix0))
    rounding = len(matrix) * torch.finfo(matrix.dtype).eps
    known = norms0 > rounding * norms0.max()
    norms, products, norms0 = norms[known], (matrix * matrix0).sum(dim=0)[known], norms0[known]
    moving = norms.detach() > rounding * norms.detach().max()
    return torch.where(moving, products / (torch.where(moving, norms, 1) * norms0), 0)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy (B,) of the class probabilities given by logits (B, C): ``−Σ_c p_c log p_c``.

    Example:
        >>> entropy(torch.zeros(1, 4)).exp()
        tensor([4.])
    """
    logs = torch.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)
