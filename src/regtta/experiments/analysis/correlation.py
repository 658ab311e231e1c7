"""Correlation between the variance of feature directions and their effect on the output."""

import torch
from torch import Tensor

from regtta.methods.alignment import significance
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
