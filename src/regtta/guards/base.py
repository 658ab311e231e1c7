"""Base classes of guards and the types of their arguments and results.

A guard is a frozen dataclass of thresholds; ``start`` returns its :class:`GuardState` for one stream, which has three
methods. ``exclude_rows`` is called first and returns samples to exclude from learning; later guards do not see them.
``before_step`` may reject the remaining batch before it is learned from, ``after_step`` the step; both return ``None``
to accept, or the reason for the rejection. A rejection leaves weights, running statistics, optimizer and the state of
the method unchanged, and the batch is predicted in eval mode.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regtta.errors import StatisticsError
from regtta.execution import ALONE, Processes
from regtta.models import Forward
from regtta.persistence import require_mapping
from regtta.statistics import ColumnArray, SourceStatistics, Whitening, column_values, to_column_array

RunPass = Callable[[Tensor, Sequence[int]], Forward]

FEW = 64  # number of coordinates up to which their products are faster on the CPU than launching GPU kernels


class IncomingBatch:
    """Batch that has not been learned from yet, with lazily computed and cached forward passes in eval mode.

    Args:
        inputs: ``(B, ...)`` on the model's device; with several processes, the shard of this process.
        current: runs the current model, given the shard of this process and the number of samples of each process.
        source: runs the source model; not called while the current model equals the source model.
        moved: True if the current model differs from the source model.
        processes: the processes that share the batch.
        counts: number of samples of each process.
    """

    def __init__(
        self,
        inputs: Tensor,
        current: RunPass,
        source: RunPass | None = None,
        *,
        moved: bool = False,
        processes: Processes = ALONE,
        counts: Sequence[int] | None = None,
    ) -> None:
        self.inputs = inputs
        self.processes = processes
        self.counts = [len(inputs)] if counts is None else counts
        self.size = sum(self.counts)
        self.moved = moved
        self._run_current = current
        self._run_source = source
        self._whitened: dict[tuple[int, int], Tensor] = {}
        self._here: dict[tuple[int, int], Tensor] = {}

    @property
    def peaks(self) -> Sequence[float]:
        """Largest magnitude ``(C,)`` of each column of the inputs over all processes.

        Not finite where a sample is not finite; empty for integer inputs and for an empty batch.
        """
        return self._peaks_and_variation[0]

    def columns(self) -> ColumnArray:
        """Return the samples of all processes as columns ``(C, B)``."""
        return to_column_array(self._values)

    @cached_property
    def not_finite(self) -> Tensor | None:
        """Mask ``(B,)`` of this process's samples with NaN or infinite values; None if no process has such samples."""
        if all(map(math.isfinite, self.peaks)) and not self.inputs.is_complex():
            return None
        finite = self.inputs.isfinite()
        rows = ~(finite.flatten(1).all(dim=1) if self.inputs.ndim > 1 else finite)
        return rows if bool(self.processes.reduce(rows.sum())) else None

    def without(self, rows: Tensor) -> "IncomingBatch":
        """Return the batch without the samples of this process in the mask ``rows`` ``(B,)``.

        Cached forward passes are reused for the remaining samples.
        """
        kept = self.inputs[~rows]
        counts = self.processes.counts(len(kept))
        rest = IncomingBatch(
            kept, self._run_current, self._run_source, moved=self.moved, processes=self.processes, counts=counts
        )
        cached = {name: self.__dict__[name] for name in ("source", "current") if name in self.__dict__}
        if cached:
            kept_of_all = ~self.processes.gather(rows.to(torch.uint8), self.counts).bool()
            for name, forward in cached.items():
                rest.__dict__[name] = Forward(forward.features[kept_of_all], forward.outputs[kept_of_all])
        if not self.moved and cached:  # both names refer to the same forward pass
            rest.__dict__["source"] = rest.current
        return rest

    @cached_property
    def varied(self) -> bool:
        """True if not all samples of all processes are equal."""
        return self._peaks_and_variation[1] or bool(self.processes.reduce((self.inputs != self._first_sample).sum()))

    @cached_property
    def _values(self) -> Tensor:
        return self.processes.gather(column_values(self.inputs), self.counts)

    @cached_property
    def _peaks_and_variation(self) -> tuple[Sequence[float], bool]:
        """The peaks, and True if the first and the last sample of a single process differ, in one device transfer."""
        inputs, alone = self.inputs, self.processes.size == 1
        if self.size == 0 or not inputs.is_floating_point():
            return (), False
        peaks = self._values.abs().amax(dim=0)
        if alone and inputs.is_cuda:
            *found, distance = torch.cat([peaks, torch.dist(inputs[-1], inputs[0], p=math.inf)[None]]).tolist()
            return found, distance != 0
        return peaks.tolist(), alone and not torch.equal(inputs[-1], inputs[0])

    @cached_property
    def _first_sample(self) -> Tensor:
        """First sample ``(1, ...)`` over all processes."""
        return self.processes.gather(self.inputs[:1], [min(1, count) for count in self.counts])[:1]

    @cached_property
    def current(self) -> Forward:
        """Features and outputs of the current model."""
        if not self.moved and "source" in self.__dict__:
            return self.source
        return self._run_current(self.inputs, self.counts)

    @cached_property
    def source(self) -> Forward:
        """Features and outputs of the source model."""
        if not self.moved or self._run_source is None:
            return self.current
        return self._run_source(self.inputs, self.counts)

    def coordinates(self, whitening: Whitening, forward: Forward) -> Tensor:
        """Return whitened coordinates ``(B, k)`` of one of the two forward passes, cached for all guards."""
        key = (id(whitening), id(forward))
        if key not in self._whitened:
            self._whitened[key] = whitening(forward.features)
        return self._whitened[key]

    def coordinates_float64(self, whitening: Whitening, forward: Forward) -> Tensor:
        """Return :meth:`coordinates` in float64, on the CPU if ``k`` is small: small sums are slow on a GPU."""
        key = (id(whitening), id(forward))
        if key not in self._here:
            values = self.coordinates(whitening, forward)
            self._here[key] = (values.cpu() if values.shape[1] <= FEW else values).double()
        return self._here[key]

    @property
    def seen_at_source(self) -> Forward | None:
        """Cached forward pass of the source model, or None if it has not been computed."""
        return self.__dict__.get("source") or (None if self.moved else self.__dict__.get("current"))


@dataclass(frozen=True)
class StepStats:
    """Statistics of one step, before it is accepted.

    Attributes:
        loss: loss of the batch, if the method has one.
        gradient_norm: norm of the gradient of that loss.
        displacement: relative displacement of the parameters after the step, ``‖θ − θ₀‖ / ‖θ₀‖``.
        finite: True if weights, running statistics, features and outputs are finite.
        forward: the forward pass that was learned from.
    """

    loss: float | None = None
    gradient_norm: float | None = None
    displacement: float = 0.0
    finite: bool = True
    forward: Forward | None = None


@dataclass(frozen=True)
class Rollback:
    """Ruling that rejects the batch or step and rolls the model back.

    Attributes:
        reason: reason for the rollback.
        to: ``"source"`` for the source model, or ``"good"`` for the last snapshot marked by :class:`MarkGood`.
    """

    reason: str
    to: Literal["source", "good"]


@dataclass(frozen=True)
class Exclusion:
    """Samples to exclude from learning.

    Attributes:
        rows: mask ``(B,)`` of the excluded samples of this process.
        reason: reason, such as ``"2 of 64 samples are not finite"``, with counts over all processes.
    """

    rows: Tensor
    reason: str


@dataclass(frozen=True)
class MarkGood:
    """Ruling that marks the current model as good, so that later rollbacks may return to it."""


Ruling = str | Rollback | MarkGood | None


@dataclass(frozen=True)
class GuardContext:
    """Information that a guard receives at the start of a stream.

    Attributes:
        min_batch_size: smallest batch size that the method can learn from.
        source: source statistics, if there are any.
        head: head of the model, if it is known.
    """

    min_batch_size: int = 2
    source: SourceStatistics | None = None
    head: nn.Linear | None = None

    def require(self, guard: str) -> tuple[SourceStatistics, nn.Linear]:
        """Return source statistics and head, or raise a StatisticsError if they are missing.

        Args:
            guard: name of the guard, for the error message.
        """
        if self.source is None or self.head is None:
            raise StatisticsError(
                f"The guard {guard} compares features with the source statistics, but none were given. Pass "
                "source=regtta.collect(model, loader), or remove the guard."
            )
        return self.source, self.head

    def whitening(self, guard: str) -> Whitening:
        """Return the whitening of the source subspace, shared by all guards, or raise a StatisticsError."""
        self.require(guard)
        return self._whitening

    @cached_property
    def _whitening(self) -> Whitening:
        return Whitening.from_statistics(*self.require("of the stream"))


class GuardState:
    """State of a guard for one stream. The base class accepts everything."""

    unusable: ClassVar[bool] = False
    """True if the remaining guards must not process a batch that this guard rejects."""

    def exclude_rows(self, batch: IncomingBatch) -> "Exclusion | None":  # noqa: ARG002 - overridden by subclasses
        """Return the samples to exclude from learning, or ``None``; if one process excludes samples, all must."""
        return None

    def before_step(self, batch: IncomingBatch) -> Ruling:  # noqa: ARG002 - overridden by subclasses
        """Return the reason to reject the batch, or ``None`` to accept it."""
        return None

    def after_step(self, stats: StepStats) -> Ruling:  # noqa: ARG002 - overridden by subclasses
        """Return the reason to reject the step, or ``None`` to accept it."""
        return None

    def on_rollback(self) -> None:
        """Handle a rollback of the model; called after it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values; empty by default."""
        return {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns; by default, empty.

        Called before anything is loaded. Not called for a guard that overrides ``state_dict`` but not this method.
        """
        require_mapping(path, state, ())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`; by default, do nothing."""


@dataclass(frozen=True)
class Guard(GuardState):
    """Base class of guards. A stateless guard is its own state; other guards override ``start``."""

    needs_source: ClassVar[bool] = False

    def start(self, context: GuardContext) -> GuardState:  # noqa: ARG002 - overridden by subclasses
        """Return the initial state for a new stream."""
        return self
