"""How much of the feature space the source uses, and which of it moves the output."""

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
    """The source's spectrum beside what the head makes of it. Directions fall in variance and count from 0.

    Attributes:
        count: samples of the source.
        dimensions: D, the width of the features.
        valid_dimensions: raw dimensions with variance.
        rank: dimensions of the subspace.
        variances: (D,) ``λ_d``.
        cumulative: (D,) share of the variance in the directions up to each, itself included.
        effects: (D,) ``‖W v_d‖₂``, how far a unit step along each direction moves the outputs.
        output_shares: (D,) ``λ_d ‖W v_d‖² / Σ``, the share of the outputs' variance, summed over outputs.
        share: of the outputs' variance that ``carrying`` is asked for.
        carrying: the fewest directions with that share, the strongest first.
        k: how many leading directions ``correlation`` is over.
        correlation: Pearson's, of ``λ_d`` and ``α_d``; NaN where one never varies.
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
        """(D,) ``α_d = 1 + ‖W v_d‖₂``, the weights of SSA."""
        return 1 + self.effects


def subspace_report(source: SourceStatistics, weight: Tensor, *, k: int = 100, share: float = 0.9) -> SubspaceReport:
    """Describe the subspace of ``source`` and what the head does with it.

    Args:
        source: statistics of the features.
        weight: (O, D) of the head.
        k: how many leading directions to correlate over; fewer where the features have fewer.
        share: of the outputs' variance, to find the directions that carry it.

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
            f"Expected a head's weight of shape (O, {source.dimensions}), found {tuple(weight.shape)}. Give the weight "
            f"of the layer {source.head!r}, which the statistics were collected at."
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
    """The largest of ``shares`` that add up to ``share``; none where there is nothing to share."""
    if not np.isfinite(shares).all():
        return ()
    order = np.argsort(-shares, kind="stable")
    # Less than rounding is missing from a sum that should be whole.
    enough = int((shares[order].cumsum() < share - 1e-12).sum()) + 1
    return tuple(order[:enough].tolist())
