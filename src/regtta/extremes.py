"""How far the source's own samples reach, in their inputs and in their features: what an outlier is compared with."""

from typing import ClassVar

import torch
from torch import Tensor

from regtta.features import Forward
from regtta.gathering import Gatherer
from regtta.outliers import column_values
from regtta.processes import Processes

_UNBOUNDED = torch.finfo(torch.float64).max


class InputRanges:
    """Finds the largest magnitude of each column of the source's inputs, without waiting for the device."""

    def __init__(self) -> None:
        self._largest: Tensor | None = None

    def see(self, inputs: Tensor) -> None:
        """Take in the inputs (B, ...) of a batch; those of whole numbers have no ranges."""
        if not inputs.is_floating_point():
            return
        found = column_values(inputs).abs().amax(dim=0).double()
        if self._largest is None or self._largest.shape != found.shape:
            self._largest = found  # of a sequence, whose length may change
        else:
            self._largest = torch.maximum(self._largest, found)

    def merged(self, processes: Processes) -> Tensor:
        """Return (C,) the ranges over all processes, on the CPU and finite; (0,) where inputs are whole numbers."""
        own = torch.zeros(0, dtype=torch.float64) if self._largest is None else self._largest.cpu()
        width = int(processes.reduce(torch.tensor(len(own)), "max"))
        whole = own if len(own) == width else torch.zeros(width, dtype=torch.float64)
        # Where the source itself is not finite, nothing is beyond its range.
        return processes.reduce(whole, "max").nan_to_num(nan=_UNBOUNDED, posinf=_UNBOUNDED)


class FurthestFeatures(Gatherer):
    """Keeps the features of the samples furthest from the first batch's mean, to know how far the source reaches."""

    kept: ClassVar[int] = 64
    rows: Tensor

    def __init__(self, device: torch.device) -> None:
        self._centre = torch.empty(0, device=device)
        self.rows = torch.empty(0, 0, device=device)

    def see(self, forward: Forward, number: int) -> None:  # noqa: ARG002 - there is one pass
        """Keep the furthest of those kept and of a batch's."""
        features = forward.features.float()
        if len(self.rows) == 0:
            self._centre, self.rows = features.mean(dim=0), features[:0]
        rows = torch.cat([self.rows, features])
        energy = (rows - self._centre).square().sum(dim=1)
        self.rows = rows[energy.topk(min(self.kept, len(rows))).indices]

    def merge(self, processes: Processes, number: int) -> None:  # noqa: ARG002 - there is one pass
        """Bring the rows of all processes together; those without data have none of the right width."""
        width = int(processes.reduce(torch.tensor(self.rows.shape[1]), "max"))
        rows = self.rows if len(self.rows) else self.rows.new_empty(0, width)
        self.rows = processes.gather(rows, processes.counts(len(rows)))

    def result(self) -> dict[str, Tensor]:
        """Nothing extra: only the largest norm of :attr:`rows` is kept."""
        return {}
