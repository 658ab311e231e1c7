"""How far the source's own samples reach, in their inputs and in their features: what an outlier is compared with."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from regtta.features import Forward
from regtta.gathering import Gatherer
from regtta.outliers import LEAST_ROWS, as_columns, column_values, is_table, outlier_scores
from regtta.processes import Processes

_WAITING = 32  # batches on a GPU before it is waited for


class InputScores:
    """Finds the largest outlier score of the source's samples, each within its batch."""

    def __init__(self) -> None:
        self._largest = 0.0
        self._waiting: list[tuple[Tensor, bool]] = []

    def see(self, inputs: Tensor) -> None:
        """Take in the inputs (B, ...) of a batch; whole numbers and fewer than 16 samples have no scores."""
        if not inputs.is_floating_point() or len(inputs) < LEAST_ROWS:
            return
        values, table = column_values(inputs), is_table(inputs)
        if inputs.device.type == "cpu":
            self._score(values, table=table)
            return
        self._waiting.append((values.clone() if table else values, table))  # the loader may write over its batch
        if len(self._waiting) == _WAITING:
            self._score_waiting()

    def largest(self) -> float:
        """Return the largest finite score so far; 0 where there is none."""
        self._score_waiting()
        return self._largest

    def _score_waiting(self) -> None:
        for values, table in self._waiting:
            self._score(values, table=table)
        self._waiting = []

    def _score(self, values: Tensor, *, table: bool) -> None:
        found = float(outlier_scores(as_columns(values), table=table).max())
        if math.isfinite(found):
            self._largest = max(self._largest, found)


class FurthestFeatures(Gatherer):
    """Keeps the features of the samples furthest from the first batch's mean, to know how far the source reaches."""

    kept: ClassVar[int] = 64
    rows: Tensor

    def __init__(self, device: torch.device) -> None:
        self._device = device
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
