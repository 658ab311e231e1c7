"""Ranges of the source data, with which outliers of a stream are compared: largest inputs and furthest features."""

from typing import ClassVar

import torch
from torch import Tensor

from regtta.execution import Communicator
from regtta.models import Forward, Inputs, input_tensors
from regtta.statistics.collectors import StatisticsCollector
from regtta.statistics.outliers import column_values

_UNBOUNDED = torch.finfo(torch.float64).max


class InputRanges:
    """Running maximum magnitude of each column of the source inputs, without device synchronisation."""

    def __init__(self) -> None:
        self._largest: Tensor | None = None

    def update(self, inputs: Inputs) -> None:
        """Update with the inputs (B, ...) of a batch, one tensor or several; integer inputs are ignored."""
        floating = [tensor for tensor in input_tensors(inputs) if tensor.is_floating_point()]
        if not floating:
            return
        found = torch.cat([column_values(tensor).abs().amax(dim=0).double() for tensor in floating])
        if self._largest is None or self._largest.shape != found.shape:
            self._largest = found  # sequences may change their length between batches
        else:
            self._largest = torch.maximum(self._largest, found)

    def all_reduce(self, processes: Communicator) -> Tensor:
        """Return the ranges (C,) over all processes, finite and on the CPU; of shape (0,) for integer inputs."""
        own = torch.zeros(0, dtype=torch.float64) if self._largest is None else self._largest.cpu()
        width = int(processes.reduce(torch.tensor(len(own)), "max"))
        whole = own if len(own) == width else torch.zeros(width, dtype=torch.float64)
        # If the source itself is not finite, its range is unbounded.
        return processes.reduce(whole, "max").nan_to_num(nan=_UNBOUNDED, posinf=_UNBOUNDED)


class FurthestFeatures(StatisticsCollector):
    """Features of the source samples furthest from the mean of the first batch."""

    max_rows: ClassVar[int] = 64
    rows: Tensor

    def __init__(self, device: torch.device) -> None:
        self._centre = torch.empty(0, device=device)
        self.rows = torch.empty(0, 0, device=device)

    def update(self, forward: Forward, pass_index: int) -> None:  # noqa: ARG002 - there is one pass
        """Update the furthest rows with the features of a batch."""
        features = forward.features.float()
        if len(self.rows) == 0:
            self._centre, self.rows = features.mean(dim=0), features[:0]
        rows = torch.cat([self.rows, features])
        energy = (rows - self._centre).square().sum(dim=1)
        self.rows = rows[energy.topk(min(self.max_rows, len(rows))).indices]

    def merge(self, processes: Communicator, pass_index: int) -> None:  # noqa: ARG002 - there is one pass
        """Gather the rows of all processes; a process without data contributes none."""
        width = int(processes.reduce(torch.tensor(self.rows.shape[1]), "max"))
        rows = self.rows if len(self.rows) else self.rows.new_empty(0, width)
        self.rows = processes.gather(rows, processes.counts(len(rows)))

    def result(self) -> dict[str, Tensor]:
        """Return no tensors: only the largest norm of :attr:`rows` is stored with the statistics."""
        return {}
