"""What every data set becomes: inputs and labels, from a source and from a target."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Domain:
    """Samples of one domain: ``inputs`` (N, ...), float32 or bytes, and ``targets`` (N,) or (N, O), float32."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: Tensor) -> "Domain":
        """The samples ``rows``."""
        return Domain(self.inputs[rows], self.targets[rows])

    def to(self, device: torch.device | str) -> "Domain":
        """The same samples elsewhere."""
        return Domain(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True, eq=False)
class Shift:
    """A data set with a shift in it.

    Attributes:
        name: what results call it.
        train: of the source, to train on and to collect statistics from.
        validation: of the source, held out.
        target: what the model adapts to and is scored on.
    """

    name: str
    train: Domain
    validation: Domain
    target: Domain


def held_out(domain: Domain, share: float, seed: int) -> tuple[Domain, Domain]:
    """``domain`` in two parts at random, the second with ``share`` of the samples."""
    kept, out = held_out_rows(len(domain), share, seed)
    return domain.take(kept), domain.take(out)


def held_out_rows(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """The numbers below ``count`` in two parts at random, the second with ``share`` of them."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    out = round(count * share)
    return order[out:], order[:out]
