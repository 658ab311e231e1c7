"""One training step: eager on the CPU, a captured CUDA graph on a GPU, optionally in bfloat16."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

_EAGER_STEPS = 5  # before capture, because libraries choose their kernels in the first steps


class Objective(Protocol):
    """Loss to minimise, optionally with modules of its own that are trained with the model."""

    @property
    def modules(self) -> list[nn.Module]:
        """Modules trained with the model."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the scalar loss of one batch, by the same operations at every step."""

    def advance(self, progress: float, optimizer: torch.optim.Optimizer) -> None:
        """Update schedules before a step; ``progress`` in [0, 1) is the completed share of the training."""


class TrainingStep:
    """One parameter update: eager at first, then replayed from a CUDA graph if ``captured``.

    Args:
        model: model to train.
        objective: loss to minimise.
        optimizer: optimizer of all trained modules.
        mixed_precision: run forward passes on a GPU in bfloat16.
        captured: capture the step as a CUDA graph, for batches on a GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        mixed_precision: bool,
        captured: bool,
    ) -> None:
        self._model, self._objective, self._optimizer = model, objective, optimizer
        self._mixed_precision, self._captured = mixed_precision, captured
        self._taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        self._inputs = self._targets = torch.empty(0)

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Update the parameters on one batch; every batch must have the same shape."""
        if not self._captured:
            self._update(inputs, targets)
            return
        if self._graph is None and self._taken < _EAGER_STEPS:
            self._warm_up(inputs, targets)
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
        # Autocast's cache would keep weights cast in the eager steps, which a captured step must not read.
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)

    def _warm_up(self, inputs: Tensor, targets: Tensor) -> None:
        # A step must have run on a side stream before it can be captured.
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
