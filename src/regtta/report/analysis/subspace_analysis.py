"""Analysis of the source subspace: spectrum, significance, reconstruction error, gradient norms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regtta.errors import HeadMismatchError, OptionError
from regtta.methods import significance
from regtta.options import check_positive_int
from regtta.report.analysis.base import AnalysisResult, Array, to_numpy
from regtta.report.analysis.feature_extraction import validate_features
from regtta.statistics import SourceStatistics


def weight_correlation(source: SourceStatistics, weight: Tensor, k: int = 100) -> float:
    """Compute Pearson's correlation between the leading variances ``λ_d`` and the weights ``α_d = 1 + ‖W v_d‖₂``.

    Args:
        source: source statistics of the features.
        weight: weight of the head, (O, D).
        k: number of leading directions, at most D.

    Returns:
        The correlation; NaN if the variances or the weights are constant.

    Example:
        >>> features = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 2.0, 1.0])
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 1))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[3.0, 2.0, 1.0]]))
        >>> import regtta
        >>> weight_correlation(regtta.collect(model, features.split(50)), model[0].weight) > 0.9
        True
    """
    leading = slice(0, min(k, source.dimensions))
    basis = source.basis[:, leading]
    alpha = significance(weight.detach().to(basis.device, basis.dtype) @ basis)
    both = torch.stack([source.variances[leading], alpha])
    spread = both.std(dim=1)
    if not bool((spread > 0).all()):
        return float("nan")
    return float(torch.corrcoef(both)[0, 1])


@dataclass(frozen=True, eq=False)
class SubspaceReport(AnalysisResult):
    """Source spectrum and the effect of each direction on the head. Directions are in order of decreasing variance.

    Attributes:
        count: number of source samples.
        dimensions: width D of the features.
        valid_dimensions: number of raw dimensions with non-zero variance.
        rank: number of dimensions of the subspace.
        variances: ``λ_d``, (D,).
        cumulative: cumulative share of the variance, (D,).
        effects: ``‖W v_d‖₂``, the change of the outputs for a unit step along each direction, (D,).
        output_shares: ``λ_d ‖W v_d‖² / Σ``, the share of the outputs' variance summed over outputs, (D,).
        share: share of the outputs' variance that ``carrying`` accounts for.
        carrying: indices of the smallest set of directions with that share, largest first.
        k: number of leading directions over which ``correlation`` is computed.
        correlation: Pearson's correlation of ``λ_d`` and ``α_d``; NaN if one of them is constant.
    """

    count: int
    dimensions: int
    valid_dimensions: int
    rank: int
    variances: Array
    cumulative: Array
    effects: Array
    output_shares: Array
    share: float
    carrying: tuple[int, ...]
    k: int
    correlation: float

    @property
    def weights(self) -> Array:
        """Weights of SSA, ``α_d = 1 + ‖W v_d‖₂``, (D,)."""
        return 1 + self.effects


def subspace_report(source: SourceStatistics, weight: Tensor, *, k: int = 100, share: float = 0.9) -> SubspaceReport:
    """Describe the subspace of ``source`` and its effect on the output of the head.

    Args:
        source: source statistics of the features.
        weight: weight of the head, (O, D).
        k: number of leading directions over which to compute the correlation, at most D.
        share: share of the outputs' variance that the directions ``carrying`` account for.

    Example:
        >>> import regtta
        >>> features = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 2.0, 1.0])
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 1))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[0.0, 5.0, 0.0]]))
        >>> report = subspace_report(regtta.collect(model, features.split(50)), model[0].weight)
        >>> report.rank, report.carrying
        (3, (1,))
    """
    check_positive_int("k", k)
    if not 0 < share <= 1:
        raise OptionError(f"Expected share above 0 and at most 1, found {share!r}.")
    if weight.ndim != 2 or weight.shape[1] != source.dimensions:
        raise HeadMismatchError(
            f"Expected a head's weight of shape (O, {source.dimensions}), found {tuple(weight.shape)}. Pass the weight "
            f"of the layer {source.head!r}, at which the statistics were collected."
        )
    effects = torch.linalg.vector_norm(weight.detach().cpu().double() @ source.basis, dim=0)
    spread = source.variances * effects**2
    shares = to_numpy(spread / spread.sum())
    return SubspaceReport(
        count=source.count,
        dimensions=source.dimensions,
        valid_dimensions=source.valid_dimensions,
        rank=source.rank,
        variances=to_numpy(source.variances),
        cumulative=to_numpy(source.variances.cumsum(0) / source.variances.sum()),
        effects=to_numpy(effects),
        output_shares=shares,
        share=share,
        carrying=_smallest_set(shares, share),
        k=min(k, source.dimensions),
        correlation=weight_correlation(source, weight, k),
    )


def _smallest_set(shares: Array, share: float) -> tuple[int, ...]:
    """Return the indices of the fewest ``shares`` that add up to ``share``; none if the shares are undefined."""
    if not np.isfinite(shares).all():
        return ()
    order = np.argsort(-shares, kind="stable")
    # The tolerance accounts for rounding in a sum that should be exactly 1.
    enough = int((shares[order].cumsum() < share - 1e-12).sum()) + 1
    return tuple(order[:enough].tolist())


_CHUNK_ROWS = 1024  # bounds the memory for wide features


@dataclass(frozen=True, eq=False)
class Reconstruction(AnalysisResult):
    """Mean reconstruction error of features from ``n`` source directions.

    Attributes:
        bases: the numbers ``n`` of directions, (M,).
        errors: mean errors by method, each (M,), in feature units; NaN if the features are not finite.
        counts: number of samples by method.
        rank: rank of the source features.
    """

    bases: NDArray[np.int64]
    errors: Mapping[str, Array]
    counts: Mapping[str, int]
    rank: int


def reconstruction(
    source: SourceStatistics, features: Mapping[str, Tensor], *, bases: Sequence[int] | None = None
) -> Reconstruction:
    """Compute the error ``L(n) = mean ‖z_r − z‖₂`` of reconstructing features from ``n`` leading source directions.

    The reconstruction is ``z_r = μ + Σ_{d≤n} ((z − μ)ᵀ v_d) v_d``: the mean for ``n = 0``, the feature for ``n = D``.

    Args:
        source: source statistics that define the mean and the directions.
        features: features of the adapted model by method, each (N, D).
        bases: the numbers ``n`` of directions; by default all from 0 to D.

    Example:
        >>> import regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1))
        >>> source = regtta.collect(model, [torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])])
        >>> reconstruction(source, {"SSA": torch.tensor([[3.0, 4.0]])}).errors["SSA"]
        array([5., 4., 0.])
    """
    wanted = np.arange(source.dimensions + 1) if bases is None else np.asarray(bases, dtype=np.int64)
    if len(wanted) == 0 or wanted.min() < 0 or wanted.max() > source.dimensions:
        raise OptionError(
            f"Expected one or more bases between 0 and {source.dimensions}, the width of the features, found {bases!r}."
        )
    rows = {name: validate_features(source, table) for name, table in features.items()}
    return Reconstruction(
        bases=wanted,
        errors={name: _mean_errors(source, table)[wanted] for name, table in rows.items()},
        counts={name: len(table) for name, table in rows.items()},
        rank=source.rank,
    )


def _mean_errors(source: SourceStatistics, features: Tensor) -> Array:
    """Return the mean error for n = 0, …, D, (D + 1,).

    The basis is complete and orthonormal, so the residual of n directions is the norm of the other coordinates.
    Summing them from the last one avoids the cancellation of a difference of large norms.
    """
    total = torch.zeros(source.dimensions + 1, dtype=torch.float64)
    for rows in torch.split(features, _CHUNK_ROWS):
        squares = ((rows - source.mean) @ source.basis) ** 2
        left_over = squares.flip(1).cumsum(1).flip(1).sqrt()
        total[:-1] += left_over.sum(0)
    return to_numpy(total / len(features))


@dataclass(frozen=True, eq=False)
class GradientNorms(AnalysisResult):
    """Gradient norms ``s_d`` of all raw dimensions. Their squares add up to k.

    Attributes:
        k: number of directions of the subspace.
        norms: the norms, (D,), between 0 and 1.
        edges: bin edges of the histogram, (bins + 1,), from 0 to 1.
        counts: number of raw dimensions in each bin, (bins,).
    """

    k: int
    norms: Array
    edges: Array
    counts: NDArray[np.int64]


def gradient_norms(
    source: SourceStatistics, *, k: int | Literal["auto"] = 100, clip: bool = True, bins: int = 40
) -> GradientNorms:
    """Compute ``s_d = ‖∂z̃/∂z_d‖₂ = ‖[v_{1,d}, …, v_{k,d}]‖₂``, the norm of the d-th row of the basis.

    Args:
        source: source statistics of the features.
        k: number of leading directions; ``"auto"`` uses the rank.
        clip: limit ``k`` to the rank, as SSA does. Directions beyond the rank are arbitrary, and so are their norms.
        bins: number of histogram bins.

    Example:
        >>> import regtta
        >>> rows = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(2, 1)), [rows])
        >>> gradient_norms(source, k="auto").norms
        array([1., 0.])
    """
    check_positive_int("bins", bins)
    wanted = min(k, source.rank) if clip and k != "auto" else k
    basis = source.top(wanted, clip=clip).basis
    norms = to_numpy(torch.linalg.vector_norm(basis, dim=1))
    # Rounding may put a norm just above 1, outside the last bin.
    counts, edges = np.histogram(norms.clip(0, 1), bins=bins, range=(0, 1))
    return GradientNorms(k=basis.shape[1], norms=norms, edges=edges, counts=counts)
