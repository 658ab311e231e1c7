"""What every data set becomes: inputs and labels, from a source and from a target."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Domain:
    """Samples of one domain: ``inputs`` (N, ...) and ``targets`` (N,) or (N, O), both float32."""

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
