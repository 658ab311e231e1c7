"""Capture and replay of functions as CUDA graphs, which removes the launch overhead of hundreds of kernels.

A graph repeats the same kernels on the same memory, so the function must perform the same operations on every call, on
inputs of one shape. After capture, the results of the graph are compared with those of an eager call. If they differ,
or if the capture fails, the function keeps running eagerly and a warning is logged.
``torch.cuda.make_graphed_callables`` has neither the comparison nor the fallback, and captures no optimizer step.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

WARMUP_CALLS = 3  # eager warm-up calls per input shape before the capture, in which libraries select their kernels
MAX_GRAPHS = 4  # captured input shapes: each graph keeps the memory of a whole step allocated

Tensors = tuple[Tensor, ...]

logger = logging.getLogger(__name__)


@dataclass
class _Entry:
    """Cache entry for inputs of one signature (shapes and dtypes)."""

    calls: int = 0
    eager: bool = False
    graph: torch.cuda.CUDAGraph | None = None
    inputs: Tensors = field(default=())
    outputs: Tensors = field(default=())


class GraphedCallable:
    """Wrapper of a function of GPU tensors that replays it as a CUDA graph from the fourth call per input shape on.

    Args:
        body: maps GPU tensors to GPU tensors; it may update other tensors in place, the same ones on every call.
        what: name of the function in log messages.
        tolerance: largest allowed difference between the results of graph and eager call, relative to the maximum.
        undo: reverts the in-place updates of the last call.
    """

    def __init__(
        self, body: Callable[..., Tensors], what: str, *, tolerance: float, undo: Callable[[], None] | None = None
    ) -> None:
        self._body = body
        self._what = what
        self._tolerance = tolerance
        self._undo = undo
        self._entries: dict[tuple[object, ...], _Entry] = {}
        self._stream: torch.cuda.Stream | None = None
        self._warned: set[str] = set()

    @property
    def graphs(self) -> int:
        """Number of captured input shapes."""
        return sum(entry.graph is not None for entry in self._entries.values())

    def reset(self) -> None:
        """Drop all graphs, for use when the tensors that they write to have been replaced."""
        self._entries.clear()

    def __call__(self, *inputs: Tensor) -> Tensors:
        """Return the results of the function; later calls do not overwrite them."""
        with torch.cuda.device(inputs[0].device):  # streams and graphs belong to the current device
            return self._results(inputs)

    def _results(self, inputs: Tensors) -> Tensors:
        entry = self._entries.setdefault(tuple((x.shape, x.dtype) for x in inputs), _Entry())
        if entry.graph is None and not entry.eager and entry.calls >= WARMUP_CALLS:
            results = self._captured(entry, inputs)
            if results is not None:
                return results
        if entry.graph is not None:
            return _replayed(entry, inputs)
        entry.calls += 1
        if entry.calls == 1 and self.graphs:
            self._warn(f"on a batch of shape {tuple(inputs[0].shape)} runs without a graph: the captured shapes differ")
        return self._run_eagerly(inputs)

    def _captured(self, entry: _Entry, inputs: Tensors) -> Tensors | None:
        """Capture a graph and return its results, or None if no valid graph can be captured."""
        if self.graphs >= MAX_GRAPHS:
            entry.eager = True
            self._warn(f"is already captured for {MAX_GRAPHS} batch shapes, the maximum; others run without a graph")
            return None
        try:
            self._capture(entry, inputs)
        except RuntimeError as error:
            self._discard(entry, f"cannot be captured ({str(error).splitlines()[0]})")
            return None
        expected = self._run_eagerly(inputs)
        if self._undo is not None:
            self._undo()
        found = _replayed(entry, inputs)
        if _agree(expected, found, self._tolerance):
            return found
        if self._undo is not None:
            self._undo()
        self._discard(entry, "returns different values when replayed: the model does not do the same on every call")
        return None

    def _capture(self, entry: _Entry, inputs: Tensors) -> None:
        entry.inputs = tuple(x.clone() for x in inputs)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU during the capture.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            entry.outputs = self._body(*entry.inputs)
        entry.graph = graph

    def _run_eagerly(self, inputs: Tensors) -> Tensors:
        """Call the function on a side stream, as CUDA graphs require of warm-up calls."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(inputs[0].device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            results = self._body(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return results

    def _discard(self, entry: _Entry, reason: str) -> None:
        entry.graph, entry.inputs, entry.outputs, entry.eager = None, (), (), True
        self._warn(f"{reason}; it runs without a graph")

    def _warn(self, message: str) -> None:
        """Log a warning, once per message."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s %s.", self._what, message)


def _replayed(entry: _Entry, inputs: Tensors) -> Tensors:
    for static, value in zip(entry.inputs, inputs, strict=True):
        static.copy_(value, non_blocking=True)
    if entry.graph is not None:
        entry.graph.replay()
    return tuple(result.clone() for result in entry.outputs)


def _agree(expected: Tensors, found: Tensors, tolerance: float) -> bool:
    for a, b in zip(expected, found, strict=True):
        scale = a.abs().max() if a.numel() else a.new_zeros(())
        if not bool(torch.isclose(a, b, rtol=tolerance, atol=float(tolerance * scale), equal_nan=True).all()):
            return False
    return True
