"""Distance of the target from the source along each direction of the subspace, before and after adaptation."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.methods import symmetric_kl
from regtta.options import check_positive_int
from regtta.report.analysis.base import AnalysisResult, Array, to_numpy
from regtta.report.analysis.feature_extraction import validate_finite_features
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class ShiftReport(AnalysisResult):
    """Moments of features along the leading source directions, relative to the source.

    Attributes:
        means: ``mean(z̃_d) / √λ_d`` by name of the features, each (k,), in source standard deviations.
        spreads: ratio of the standard deviation to the source's by name, each (k,); 1 if they agree.
        divergences: symmetric KL divergence to the source's Gaussian by name, each (k,); SSA minimises it.
        counts: number of samples by name.
    """

    means: Mapping[str, Array]
    spreads: Mapping[str, Array]
    divergences: Mapping[str, Array]
    counts: Mapping[str, int]

    def total(self, name: str) -> float:
        """Return the divergence summed over all directions."""
        return float(self.divergences[name].sum())


def shift_report(source: SourceStatistics, features: Mapping[str, Tensor], *, k: int = 100) -> ShiftReport:
    """Compare features with the source, direction by direction.

    Args:
        source: source statistics that define the mean, variances and directions.
        features: finite features by name, such as before and after adaptation, each (N, D) with at least two rows.
        k: number of leading directions, at most the rank.

    Example:
        >>> import regtta
        >>> rows = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([2.0, 1.0])
        >>> source = regtta.collect(torch.nn.Sequential(torch.nn.Linear(2, 1)), [rows])
        >>> report = shift_report(source, {"same": rows, "wider": rows * 2})
        >>> round(report.total("same"), 3), report.spreads["wider"].round(2).tolist()
        (0.0, [2.0, 2.0])
    """
    check_positive_int("k", k)
    subspace = source.top(min(k, source.rank))
    found = {}
    for name, rows in features.items():
        projected = subspace.project(validate_finite_features(source, rows, f"the features {name!r}"))
        found[name] = (projected.mean(dim=0), projected.var(dim=0), len(rows))
    zeros = torch.zeros_like(subspace.variances)
    return ShiftReport(
        means={name: to_numpy(mean / subspace.variances.sqrt()) for name, (mean, _, _) in found.items()},
        spreads={name: to_numpy((variance / subspace.variances).sqrt()) for name, (_, variance, _) in found.items()},
        divergences={
            name: to_numpy(symmetric_kl(mean, variance, zeros, subspace.variances))
            for name, (mean, variance, _) in found.items()
        },
        counts={name: count for name, (_, _, count) in found.items()},
    )
