"""Discretisation of labels into equal-width bins over the range of the source labels."""

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.experiments.datasets.domains import Domain

BINS = 10


def bin_edges(targets: Tensor, bins: int = BINS) -> Tensor:
    """Return the inner edges (bins − 1,) of equal-width bins over the range of ``targets`` (N, 1).

    Example:
        >>> bin_edges(torch.tensor([[0.0], [4.0]]), bins=4).tolist()
        [1.0, 2.0, 3.0]
    """
    if bins < 2:
        raise OptionError(f"Expected at least 2 bins, found {bins}.")
    low, high = targets.min(), targets.max()
    if not high > low:
        raise OptionError(f"Expected labels that vary, found all equal to {float(low)}: they cannot be binned.")
    return torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1].mul(high - low).add(low)


def in_classes(domain: Domain, edges: Tensor) -> Domain:
    """Replace each label (N, 1) of ``domain`` by the index of its bin; labels out of range go to the outermost bins."""
    classes = torch.bucketize(domain.targets.double(), edges.to(domain.targets.device), right=True)
    return Domain(domain.inputs, classes.float())
