"""Matrix decompositions with fallbacks for ill-conditioned matrices and finite gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regtta.errors import StatisticsError

LinAlgError: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


def stable_eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues (D,), ascending, and eigenvectors (D, D), as columns, of a covariance matrix (D, D).

    The results are on the device of ``matrix``, or on the CPU if its solver did not converge: GPU solvers fail on some
    ill-conditioned matrices that LAPACK decomposes.

    Example:
        >>> stable_eigh(torch.diag(torch.tensor([2.0, 1.0])))[0]
        tensor([1., 2.])
    """
    try:
        values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
    except LinAlgError:
        matrix = matrix.detach().cpu().double()
        matrix = (matrix + matrix.T) / 2
    try:
        values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
    except LinAlgError as error:
        found = str(error).splitlines()[0]
    try:
        # The singular values of a positive semi-definite matrix are its eigenvalues, and the algorithm is another one.
        vectors, values, _ = torch.linalg.svd(matrix)
        return values.flip(0), vectors.flip(1)
    except LinAlgError as error:
        entries = "are all finite" if bool(matrix.isfinite().all()) else "are not all finite"
        raise StatisticsError(
            f"The second moments of the source features, {len(matrix)} × {len(matrix)}, have no eigenvalue "
            f"decomposition ({found}); their entries {entries}. Check that the model's features on the source are "
            "finite and of moderate scale, and collect the statistics again."
        ) from error


def stable_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose a real matrix (m, n) as ``U diag(s) Vᵀ``, with gradients that are finite for any matrix.

    Args:
        matrix: (m, n), real.

    Returns:
        U (m, k), s (k,) in descending order and V (n, k), with k = min(m, n). Singular vectors of equal singular values
        are defined up to a rotation among themselves, and those of zero are arbitrary; gradients omit these rotations.
        They are exact for functions that do not depend on that choice, such as the distance between the subspaces
        spanned by leading vectors. (The gradient of ``torch.linalg.svd`` divides by the difference of equal values.)

    Example:
        >>> x = torch.eye(3, requires_grad=True)
        >>> u, s, v = stable_svd(x)
        >>> torch.autograd.grad((u @ torch.diag(s) @ v.T).sum(), x)[0].isfinite().all()
        tensor(True)
    """
    decomposed: tuple[Tensor, Tensor, Tensor] = _SingularVectors.apply(matrix)
    return decomposed


class _SingularVectors(torch.autograd.Function):
    """Thin singular value decomposition whose gradient treats values closer than rounding error as equal."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, values, vt = torch.linalg.svd(matrix, full_matrices=False)
        v = vt.T.contiguous()
        ctx.save_for_backward(u, values, v)
        return u, values, v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_u: Tensor, by_values: Tensor, by_v: Tensor) -> Tensor:
        u, values, v = ctx.saved_tensors
        rounding = 8 * torch.finfo(values.dtype).eps * values.max()
        gaps = values - values.unsqueeze(1)  # [i, j]: s_j − s_i
        rotations = _inverse_or_zero(gaps * (values + values.unsqueeze(1)), gaps.abs() > rounding)
        inverse = _inverse_or_zero(values, values > rounding)
        in_u, in_v = u.T @ by_u, v.T @ by_v
        from_u, from_v = rotations * (in_u - in_u.T), rotations * (in_v - in_v.T)
        core = from_u * values + values.unsqueeze(1) * from_v + torch.diag(by_values)
        outside_u, outside_v = by_u - u @ in_u, by_v - v @ in_v
        gradient: Tensor = (u @ core + outside_u * inverse) @ v.T + u @ (outside_v * inverse).T
        return gradient


def truncated_inverse(features: Tensor, vectors: Tensor, values: Tensor, count: int) -> Tensor:
    """Return the pseudo-inverse (D, D) of rank ``count`` of the Gram matrix ``ZᵀZ/B`` of features (B, D).

    Its gradient with respect to the features is exact also where eigenvalues are equal: between two directions that are
    kept it is ``−1/(λ_i λ_j)``, without their difference. (A gradient through the eigenvectors divides by it.) It is
    omitted only between a kept and a dropped direction of equal eigenvalues, where the truncation is not defined.

    Args:
        features: (B, D).
        vectors: (D, m), the eigenvectors of the Gram matrix as columns, leading first, all but those of the value 0.
        values: (m,), their eigenvalues.
        count: number of leading directions to keep.

    Example:
        >>> z = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> truncated_inverse(z, torch.eye(2), torch.tensor([2.0, 0.5]), 1)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    inverse: Tensor = _TruncatedInverse.apply(features, vectors.detach(), values.detach(), count)
    return inverse


class _TruncatedInverse(torch.autograd.Function):
    """Pseudo-inverse of a Gram matrix, with the gradient of Daleckii and Krein for functions of symmetric matrices."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, vectors: Tensor, values: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(features, vectors, values)
        ctx.count = count
        kept = vectors[:, :count]
        return (kept / values[:count]) @ kept.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_inverse: Tensor) -> tuple[Tensor, None, None, None]:
        features, vectors, values = ctx.saved_tensors
        count, kept, inverse = ctx.count, vectors[:, : ctx.count], values[: ctx.count].reciprocal()
        symmetric = (by_inverse + by_inverse.T) / 2
        within = vectors.T @ symmetric @ vectors
        # Divided differences (f(λ_i) − f(λ_j)) / (λ_i − λ_j) of f = 1/λ on the kept values and 0 on the others.
        slopes = torch.zeros_like(within)
        slopes[:count, :count] = -torch.outer(inverse, inverse)
        gaps = values[:count].unsqueeze(1) - values[count:]
        rounding = 8 * torch.finfo(values.dtype).eps * values.max()
        slopes[:count, count:] = inverse.unsqueeze(1) * _inverse_or_zero(gaps, gaps > rounding)
        slopes[count:, :count] = slopes[:count, count:].T
        outside = symmetric @ kept - vectors @ within[:, :count]  # towards directions of the value 0
        across = (outside * inverse.square()) @ kept.T
        by_gram = vectors @ (slopes * within) @ vectors.T + across + across.T
        return features @ by_gram * (2 / len(features)), None, None, None


def _inverse_or_zero(values: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, torch.where(where, values, 1).reciprocal(), 0)
