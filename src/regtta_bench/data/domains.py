"""Source and target domains as tensors, and labels made discrete for classifiers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.errors import OptionError


@dataclass(frozen=True, eq=False)
class Domain:
    """Samples of one domain: ``inputs`` (N, ...), float32 or uint8, and ``targets`` (N,) or (N, O), float32."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: Tensor) -> "Domain":
        """Return the samples at ``rows``, given as indices or as a mask."""
        return Domain(self.inputs[rows], self.targets[rows])

    def to(self, device: torch.device | str) -> "Domain":
        """Return the samples on ``device``."""
        return Domain(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True, eq=False)
class ShiftedDataset:
    """Data set with a distribution shift.

    Attributes:
        name: name in the results.
        train: source samples for training and for the source statistics.
        validation: held-out source samples.
        target: target samples, for adaptation and scoring.
    """

    name: str
    train: Domain
    validation: Domain
    target: Domain


def split_domain(domain: Domain, share: float, seed: int) -> tuple[Domain, Domain]:
    """Split ``domain`` at random into two parts, the second with ``share`` of the samples."""
    kept, out = split_indices(len(domain), share, seed)
    return domain.take(kept), domain.take(out)


def split_indices(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Split the indices 0, …, ``count`` − 1 at random into two parts, the second with ``share`` of them."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    out = round(count * share)
    return order[out:], order[:out]


DEFAULT_BINS = 10


def bin_edges(targets: Tensor, bins: int = DEFAULT_BINS) -> Tensor:
    """Return the inner edges (bins − 1,) of equal-width bins over the range of ``targets`` (N, 1).

    Example:
        >>> bin_edges(torch.tensor([[0.0], [4.0]]), bins=4).tolist()
        [1.0, 2.0, 3.0]
    """
    if bins < 2:
        raise OptionError(f"Expected at least 2 bins, found {bins}.")
    low, high = targets.double().aminmax()  # in float64, else a label on an edge may fall into the bin below it
    if not high > low:
        raise OptionError(f"Expected labels that vary, found all equal to {float(low)}: they cannot be binned.")
    return torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1].mul(high - low).add(low)


def discretise(domain: Domain, edges: Tensor) -> Domain:
    """Replace each label (N, 1) of ``domain`` by the index of its bin; labels out of range go to the outermost bins."""
    classes = torch.bucketize(domain.targets.double(), edges.to(domain.targets.device), right=True)
    return Domain(domain.inputs, classes.float())
