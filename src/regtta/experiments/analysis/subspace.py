"""Spectrum of the source features and the effect of each direction on the output."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regtta.errors import HeadMismatchError, OptionError
from regtta.experiments.analysis.correlation import weight_correlation
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.options import check_count
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class SubspaceReport(Report):
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
    check_count("k", k)
    if not 0 < share <= 1:
        raise OptionError(f"Expected share above 0 and at most 1, found {share!r}.")
    if weight.ndim != 2 or weight.shape[1] != source.dimensions:
        raise HeadMismatchError(
            f"Expected a head's weight of shape (O, {source.dimensions}), found {tuple(weight.shape)}. Pass the weight "
            f"of the layer {source.head!r}, at which the statistics were collected."
        )
    effects = torch.linalg.vector_norm(weight.detach().cpu().double() @ source.basis, dim=0)
    spread = source.variances * effects**2
    shares = array(spread / spread.sum())
    return SubspaceReport(
        count=source.count,
        dimensions=source.dimensions,
        valid_dimensions=source.valid_dimensions,
        rank=source.rank,
        variances=array(source.variances),
        cumulative=array(source.variances.cumsum(0) / source.variances.sum()),
        effects=array(effects),
        output_shares=shares,
        share=share,
        carrying=_fewest_with(shares, share),
        k=min(k, source.dimensions),
        correlation=weight_correlation(source, weight, k),
    )


def _fewest_with(shares: Array, share: float) -> tuple[int, ...]:
    """Return the indices of the fewest ``shares`` that add up to ``share``; none if the shares are undefined."""
    if not np.isfinite(shares).all():
        return ()
    order = np.argsort(-shares, kind="stable")
    # The tolerance accounts for rounding in a sum that should be exactly 1.
    enough = int((shares[order].cumsum() < share - 1e-12).sum()) + 1
    return tuple(order[:enough].tolist())
