"""Adapter that shards each batch between processes and returns the results of the whole batch."""

from collections.abc import Callable

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.engine import StepView
from regtta.execution import Processes
from regtta.types import Step


class SharedAdapter(Adapter):
    """Adapter that takes the same whole batch in every process and returns the step of the whole batch.

    Each process runs the model on its shard of the rows, in the order of ranks, and the predictions are gathered.
    Scores, files, monitors and checkpoints therefore see the same stream in every process.
    """

    def adapt(
        self, x: object, targets: Tensor | None = None, *, look: Callable[[StepView], None] | None = None
    ) -> Step:
        """Adapt to the whole batch ``x`` ``(B, ...)``, see :meth:`Adapter.adapt`."""
        share = _Share(self._processes, x)
        own_targets = None if targets is None else share.of(targets)
        seen: list[StepView] = []
        own = super().adapt(share.inputs, own_targets, look=None if look is None else seen.append)
        step = Step(own.index, share.joined(own.predictions), own.diagnostics, share.joined_rows(own.excluded_rows))
        if look is not None:
            for sight in seen:
                look(StepView(step, sight.answered, sight.source))
        return step

    def predict(self, x: object) -> Tensor:
        """Predict the whole batch ``x`` ``(B, ...)``; a collective call, which every process must make."""
        share = _Share(self._processes, x)
        # A model may not support an empty batch.
        rows = share.inputs if len(share.inputs) else share.whole[:1]
        return share.joined(super().predict(rows)[: len(share.inputs)])


class _Share:
    """Shard of a batch that belongs to this process."""

    def __init__(self, processes: Processes, x: object) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected the inputs of a batch, found {type(x).__name__}")
        self._processes = processes
        self.whole = x
        parts = x.tensor_split(processes.size)
        self.inputs = parts[processes.rank]
        self._counts = [len(part) for part in parts]

    def of(self, rows: Tensor) -> Tensor:
        """Return the shard of ``rows`` ``(B, ...)``."""
        return self._processes.own(rows, self._counts)

    def joined(self, rows: Tensor) -> Tensor:
        """Gather the rows of all processes; ``rows`` are those of this one."""
        return self._processes.gather(rows.detach(), self._counts)

    def joined_rows(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Gather row indices of all processes and convert them to indices in the whole batch."""
        marked = torch.zeros(len(self.inputs), dtype=torch.uint8)
        marked[list(rows)] = 1
        return tuple(self.joined(marked).nonzero().flatten().tolist())
