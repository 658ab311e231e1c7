"""Whether the directions of large variance are those that move the output."""

import torch
from torch import Tensor

from regtta.methods.alignment import significance
from regtta.statistics import SourceStatistics


def weight_correlation(source: SourceStatistics, weight: Tensor, k: int = 100) -> float:
    """Pearson's correlation between the leading variances ``λ_d`` and weights ``α_d = 1 + ‖W v_d‖₂``.

    Args:
        source: statistics of the features.
        weight: (O, D) of the head.
        k: how many leading directions; fewer where the features have fewer.

    Returns:
        NaN where one of the two never varies.

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
