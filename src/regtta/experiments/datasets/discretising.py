"""Numbers as classes: equal bins over the range of the source's labels."""

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.experiments.datasets.domains import Domain

BINS = 10


def bin_edges(targets: Tensor, bins: int = BINS) -> Tensor:
    """(bins − 1,) the inner edges of equal bins between the smallest and the largest of ``targets`` (N, 1).

    Example:
        >>> bin_edges(torch.tensor([[0.0], [4.0]]), bins=4).tolist()
        [1.0, 2.0, 3.0]
    """
    if bins < 2:
        raise OptionError(f"Expected at least 2 bins, found {bins}: one class has nothing to tell apart.")
    low, high = targets.min(), targets.max()
    if not high > low:
        raise OptionError(f"Expected labels that vary, to put them into classes; all are {float(low)}.")
    return torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1].mul(high - low).add(low)


def in_classes(domain: Domain, edges: Tensor) -> Domain:
    """``domain`` with each label (N, 1) as the number of its bin; beyond the ends counts as the last bin there."""
    classes = torch.bucketize(domain.targets.double(), edges.to(domain.targets.device), right=True)
    return Domain(domain.inputs, classes.float())
