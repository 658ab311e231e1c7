"""An adapter that several processes share batch by batch, and that looks like one that has each batch to itself."""

from collections.abc import Callable

import torch
from torch import Tensor

from regtta.adapter import Adapter
from regtta.processes import Processes
from regtta.sight import StepView
from regtta.steps import Step


class SharedAdapter(Adapter):
    """Takes whole batches, the same ones in every process, and gives whole steps.

    Each process runs the model on its share of the rows, one below the other by rank, and all predictions are brought
    together. So whatever follows the stream (scores, files, a monitor, checkpoints) follows it in every process alike.
    """

    def adapt(
        self, x: object, targets: Tensor | None = None, *, look: Callable[[StepView], None] | None = None
    ) -> Step:
        """:meth:`Adapter.adapt` of the whole batch ``x`` (B, ...)."""
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
        """:meth:`Adapter.predict` of the whole batch ``x`` (B, ...); all processes ask at the same time."""
        share = _Share(self._processes, x)
        # A model need not be able to run on no rows at all.
        rows = share.inputs if len(share.inputs) else share.whole[:1]
        return share.joined(super().predict(rows)[: len(share.inputs)])


class _Share:
    """The part of a batch that this process has."""

    def __init__(self, processes: Processes, x: object) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"expected the inputs of a batch, found {type(x).__name__}")
        self._processes = processes
        self.whole = x
        parts = x.tensor_split(processes.size)
        self.inputs = parts[processes.rank]
        self._counts = [len(part) for part in parts]

    def of(self, rows: Tensor) -> Tensor:
        """Those of ``rows`` (B, ...) that belong to it."""
        return self._processes.own(rows, self._counts)

    def joined(self, rows: Tensor) -> Tensor:
        """The rows of all processes, where this one has ``rows``."""
        return self._processes.gather(rows.detach(), self._counts)

    def joined_rows(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """The indices in the whole batch of the rows of all processes, where this one has ``rows`` of its part."""
        marked = torch.zeros(len(self.inputs), dtype=torch.uint8)
        marked[list(rows)] = 1
        return tuple(self.joined(marked).nonzero().flatten().tolist())
