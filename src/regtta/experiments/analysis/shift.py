"""How far the target is from the source along each direction of the subspace, before adapting and after."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.divergences import symmetric_kl
from regtta.experiments.analysis.features import finite_features
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.options import check_count
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class ShiftReport(Report):
    """Moments of features along the leading source directions, next to the source's.

    Attributes:
        means: (k,) by name of the features: ``mean(z̃_d) / √λ_d``, in the source's standard deviations.
        spreads: (k,) by name: the standard deviation there over the source's; 1 where they agree.
        divergences: (k,) by name: the symmetric KL divergence of the two Gaussians, which SSA descends.
        counts: samples, by name.
    """

    means: Mapping[str, Array]
    spreads: Mapping[str, Array]
    divergences: Mapping[str, Array]
    counts: Mapping[str, int]

    def total(self, name: str) -> float:
        """The divergence over all directions."""
        return float(self.divergences[name].sum())


def shift_report(source: SourceStatistics, features: Mapping[str, Tensor], *, k: int = 100) -> ShiftReport:
    """Compare features with the source, direction by direction.

    Args:
        source: whose mean, variances and directions.
        features: (N, D) by name, such as those before adapting and after; finite, two rows or more.
        k: how many leading directions, at most the rank.

    Example:
        >>> import regtta
        >>> rows = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([2.0, 1.0])
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(2, 1)), [rows])
        >>> report = shift_report(source, {"same": rows, "wider": rows * 2})
        >>> round(report.total("same"), 3), report.spreads["wider"].round(2).tolist()
        (0.0, [2.0, 2.0])
    """
    check_count("k", k)
    subspace = source.top(min(k, source.rank))
    found = {}
    for name, rows in features.items():
        projected = subspace.project(finite_features(source, rows, f"those {name}"))
        found[name] = (projected.mean(dim=0), projected.var(dim=0), len(rows))
    nothing = torch.zeros_like(subspace.variances)
    return ShiftReport(
        means={name: array(mean / subspace.variances.sqrt()) for name, (mean, _, _) in found.items()},
        spreads={name: array((variance / subspace.variances).sqrt()) for name, (_, variance, _) in found.items()},
        divergences={
            name: array(symmetric_kl(mean, variance, nothing, subspace.variances))
            for name, (mean, variance, _) in found.items()
        },
        counts={name: count for name, (_, _, count) in found.items()},
    )
