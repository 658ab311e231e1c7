"""One update of the training: plain on the CPU; on a GPU replayed from a captured graph, in bfloat16 where asked."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

_EAGER_STEPS = 5  # before a step is captured: libraries choose their kernels in these


class Objective(Protocol):
    """What is minimised. May own modules of its own, which are trained along."""

    @property
    def modules(self) -> list[nn.Module]:
        """The modules to train beside the model."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """A scalar on one batch; the same operations at every step."""

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Told before each step what share of the training is done."""


class TrainingStep:
    """One update: eager at first, then, on a GPU, replayed from a captured graph.

    Args:
        model: to train.
        objective: what to minimise.
        optimizer: of all that is trained.
        mixed_precision: whether forward passes on a GPU run in bfloat16.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, optimizer: torch.optim.Optimizer, *, mixed_precision: bool
    ) -> None:
        self._model, self._objective, self._optimizer = model, objective, optimizer
        self._mixed_precision = mixed_precision
        self._taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._inputs = self._targets = torch.empty(0)

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Learn from one batch, of the same shape each time."""
        if not inputs.is_cuda:
            self._update(inputs, targets)
            return
        if self._graph is None and self._taken < _EAGER_STEPS:
            self._aside(inputs, targets)
        else:
            if self._graph is None:
                self._capture(inputs, targets)
            self._inputs.copy_(inputs)
            self._targets.copy_(targets)
            if self._graph is not None:
                self._graph.replay()
        self._taken += 1

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._precision(inputs):
            loss = self._objective.loss(self._model, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _precision(self, inputs: Tensor) -> AbstractContextManager[object]:
        if not (self._mixed_precision and inputs.is_cuda):
            return nullcontext()
        # Weights cast once would be kept from the eager steps, which a captured step must not read.
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)

    def _aside(self, inputs: Tensor, targets: Tensor) -> None:
        # What is to be captured must have run on a stream of its own before.
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._update(inputs, targets)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self, inputs: Tensor, targets: Tensor) -> None:
        self._inputs, self._targets = inputs.clone(), targets.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._update(self._inputs, self._targets)
