"""Work on a GPU replayed from a CUDA graph: one call in place of hundreds, so that the GPU never waits for Python.

A graph repeats the same kernels on the same memory. So what is replayed must do the same at every call, on inputs of
one shape. That is looked at before a graph is trusted: the call that captures is also made without the graph, and both
must agree. Where they do not, or where a graph cannot be made, the work is done as before and the log says why.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

FIRST = 3  # calls on inputs of a shape before it is captured: libraries choose their kernels in these
MOST = 4  # shapes that are captured: each holds on to the memory of a whole step

Tensors = tuple[Tensor, ...]

logger = logging.getLogger(__name__)


@dataclass
class _Kind:
    """Inputs of one shape and dtype."""

    calls: int = 0
    refused: bool = False
    graph: torch.cuda.CUDAGraph | None = None
    inputs: Tensors = field(default=())
    outputs: Tensors = field(default=())


class Replay:
    """A function of tensors on a GPU, replayed from a graph from its fourth call on inputs of one shape on.

    Args:
        body: takes and gives tensors on the GPU; may change others in place, always the same ones.
        what: it is, for the log.
        tolerance: how far a graph's results may be from those of the function itself, relative to the largest.
        undo: takes back what a call has changed.
    """

    def __init__(
        self, body: Callable[..., Tensors], what: str, *, tolerance: float, undo: Callable[[], None] | None = None
    ) -> None:
        self._body = body
        self._what = what
        self._tolerance = tolerance
        self._undo = undo
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._stream: torch.cuda.Stream | None = None
        self._told: set[str] = set()

    @property
    def graphs(self) -> int:
        """How many shapes are replayed."""
        return sum(kind.graph is not None for kind in self._kinds.values())

    def forget(self) -> None:
        """Drop all graphs: what they write to is there no more."""
        self._kinds.clear()

    def __call__(self, *inputs: Tensor) -> Tensors:
        """The function's results, which later calls leave alone."""
        with torch.cuda.device(inputs[0].device):  # streams and graphs are those of the device that is current
            return self._results(inputs)

    def _results(self, inputs: Tensors) -> Tensors:
        kind = self._kinds.setdefault(tuple((x.shape, x.dtype) for x in inputs), _Kind())
        if kind.graph is None and not kind.refused and kind.calls >= FIRST:
            results = self._captured(kind, inputs)
            if results is not None:
                return results
        if kind.graph is not None:
            return _replayed(kind, inputs)
        kind.calls += 1
        if kind.calls == 1 and self.graphs:
            self._tell(f"on a batch of shape {tuple(inputs[0].shape)} is made without a graph, which is of another")
        return self._aside(inputs)

    def _captured(self, kind: _Kind, inputs: Tensors) -> Tensors | None:
        """The results by a new graph, or None where there can be none."""
        if self.graphs >= MOST:
            kind.refused = True
            self._tell(f"is replayed for {MOST} shapes of batches already; others are made without a graph")
            return None
        try:
            self._capture(kind, inputs)
        except RuntimeError as error:
            self._refuse(kind, f"cannot be captured ({str(error).splitlines()[0]})")
            return None
        expected = self._aside(inputs)
        if self._undo is not None:
            self._undo()
        found = _replayed(kind, inputs)
        if _agree(expected, found, self._tolerance):
            return found
        if self._undo is not None:
            self._undo()
        self._refuse(kind, "gives other numbers when replayed: the model does not do the same at every call")
        return None

    def _capture(self, kind: _Kind, inputs: Tensors) -> None:
        kind.inputs = tuple(x.clone() for x in inputs)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            kind.outputs = self._body(*kind.inputs)
        kind.graph = graph

    def _aside(self, inputs: Tensors) -> Tensors:
        """A plain call, on a stream of its own: what is to be captured must have run on one before."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(inputs[0].device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            results = self._body(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return results

    def _refuse(self, kind: _Kind, why: str) -> None:
        kind.graph, kind.inputs, kind.outputs, kind.refused = None, (), (), True
        self._tell(f"{why}; it is made without a graph")

    def _tell(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            logger.warning("%s %s.", self._what, why)


def _replayed(kind: _Kind, inputs: Tensors) -> Tensors:
    for there, here in zip(kind.inputs, inputs, strict=True):
        there.copy_(here, non_blocking=True)
    if kind.graph is not None:
        kind.graph.replay()
    return tuple(result.clone() for result in kind.outputs)


def _agree(expected: Tensors, found: Tensors, tolerance: float) -> bool:
    for a, b in zip(expected, found, strict=True):
        scale = a.abs().max() if a.numel() else a.new_zeros(())
        if not bool(torch.isclose(a, b, rtol=tolerance, atol=float(tolerance * scale), equal_nan=True).all()):
            return False
    return True
