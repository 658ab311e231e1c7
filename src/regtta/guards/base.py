"""Base classes of guards, and what they are given.

A guard is a frozen dataclass of thresholds; ``start`` returns its :class:`GuardState` for one stream: what it
remembers. A state has three methods. ``exclude_rows`` comes first and names samples to leave out: nothing is learned
from them, and no other guard sees them. ``before_step`` may refuse the rest of the batch before it is learned from,
``after_step`` the step: either returns ``None`` for yes, or the reason why not. What is refused leaves weights, running
statistics, optimizer and the method's own memory exactly as they were, and the batch is predicted in eval mode.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regtta.errors import StatisticsError
from regtta.features import Forward
from regtta.outliers import Columns, as_columns, column_values
from regtta.processes import ALONE, Processes
from regtta.state_validation import require_mapping
from regtta.statistics import SourceStatistics
from regtta.whitening import Whitening

RunPass = Callable[[Tensor, Sequence[int]], Forward]

FEW = 64  # coordinates whose products a CPU makes sooner than a GPU is asked for them


class IncomingBatch:
    """A batch before it is learned from. Forward passes are made when first asked for, in eval mode, and once.

    Args:
        inputs: (B, ...) on the model's device; where samples lie in several processes, those of this one.
        current: runs the model as it is now on samples of this process and, by how many each has, of all others.
        source: runs the model as it was when the stream began; the same pass while nothing has moved.
        moved: whether anything has.
        processes: who has samples of the batch.
        counts: how many each has.
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
        """(C,) the largest magnitude of each column of the inputs, see :mod:`regtta.outliers`, over all processes.

        Not finite where a sample is not; empty for inputs of whole numbers and for a batch without samples.
        """
        return self._glance[0]

    def columns(self) -> Columns:
        """Return the samples of all processes in a few columns (C, B)."""
        return as_columns(self._values)

    @cached_property
    def not_finite(self) -> Tensor | None:
        """(B,) true where a sample of this process has a NaN or an infinity in it; None if none of any process has."""
        if all(map(math.isfinite, self.peaks)) and not self.inputs.is_complex():
            return None
        finite = self.inputs.isfinite()
        rows = ~(finite.flatten(1).all(dim=1) if self.inputs.ndim > 1 else finite)
        return rows if bool(self.processes.reduce(rows.sum())) else None

    def without(self, rows: Tensor) -> "IncomingBatch":
        """Return the batch less the samples of this process that ``rows`` (B,) marks.

        Passes that were made stay made: their rows of the other samples are taken.
        """
        kept = self.inputs[~rows]
        counts = self.processes.counts(len(kept))
        rest = IncomingBatch(
            kept, self._run_current, self._run_source, moved=self.moved, processes=self.processes, counts=counts
        )
        made = {name: self.__dict__[name] for name in ("source", "current") if name in self.__dict__}
        if made:
            everywhere = ~self.processes.gather(rows.to(torch.uint8), self.counts).bool()
            for name, forward in made.items():
                rest.__dict__[name] = Forward(forward.features[everywhere], forward.outputs[everywhere])
        if not self.moved and made:  # both names are of one pass
            rest.__dict__["source"] = rest.current
        return rest

    @cached_property
    def varied(self) -> bool:
        """Whether two samples, of whatever processes, differ."""
        return self._glance[1] or bool(self.processes.reduce((self.inputs != self._first_sample).sum()))

    @cached_property
    def _values(self) -> Tensor:
        return self.processes.gather(column_values(self.inputs), self.counts)

    @cached_property
    def _glance(self) -> tuple[Sequence[float], bool]:
        """The peaks, and whether the first and the last sample of one process differ, in one read from the device."""
        inputs, alone = self.inputs, self.processes.size == 1
        if self.size == 0 or not inputs.is_floating_point():
            return (), False
        peaks = self._values.abs().amax(dim=0)
        if alone and inputs.is_cuda:
            *found, gap = torch.cat([peaks, torch.dist(inputs[-1], inputs[0], p=math.inf)[None]]).tolist()
            return found, gap != 0
        return peaks.tolist(), alone and not torch.equal(inputs[-1], inputs[0])

    @cached_property
    def _first_sample(self) -> Tensor:
        """(1, ...) the first sample of all processes."""
        return self.processes.gather(self.inputs[:1], [min(1, count) for count in self.counts])[:1]

    @cached_property
    def current(self) -> Forward:
        """Features and outputs of the model as it is now."""
        if not self.moved and "source" in self.__dict__:
            return self.source
        return self._run_current(self.inputs, self.counts)

    @cached_property
    def source(self) -> Forward:
        """Features and outputs of the model as it was when the stream began."""
        if not self.moved or self._run_source is None:
            return self.current
        return self._run_source(self.inputs, self.counts)

    def coordinates(self, whitening: Whitening, forward: Forward) -> Tensor:
        """Whitened coordinates (B, k) of one of the two passes, made once however many guards look at them."""
        place = (id(whitening), id(forward))
        if place not in self._whitened:
            self._whitened[place] = whitening(forward.features)
        return self._whitened[place]

    def coordinates_here(self, whitening: Whitening, forward: Forward) -> Tensor:
        """The same in float64, and on the CPU where they are few: many small sums cost less there than on a GPU."""
        place = (id(whitening), id(forward))
        if place not in self._here:
            values = self.coordinates(whitening, forward)
            self._here[place] = (values.cpu() if values.shape[1] <= FEW else values).double()
        return self._here[place]

    @property
    def seen_at_source(self) -> Forward | None:
        """The source model's pass if one was made, by whichever name while nothing had moved."""
        return self.__dict__.get("source") or (None if self.moved else self.__dict__.get("current"))


@dataclass(frozen=True)
class StepStats:
    """What one step did, before it is let stand.

    Attributes:
        loss: of the batch, where the method has one.
        gradient_norm: of that loss.
        displacement: of the parameters after the step, ``‖θ − θ₀‖ / ‖θ₀‖``.
        finite: whether weights, running statistics, features and outputs are.
        forward: the pass that was learned from.
    """

    loss: float | None = None
    gradient_norm: float | None = None
    displacement: float = 0.0
    finite: bool = True
    forward: Forward | None = None


@dataclass(frozen=True)
class Rollback:
    """A ruling that refuses, and takes back more than this step.

    Attributes:
        reason: why.
        to: ``"source"``, the model as it was at first, or ``"good"``, the last that a :class:`Keep` marked.
    """

    reason: str
    to: Literal["source", "good"]


@dataclass(frozen=True)
class Exclusion:
    """Samples to leave out of learning.

    Attributes:
        rows: (B,) true for those samples of this process.
        reason: why, such as ``"2 of 64 samples are not finite"``; counted over all processes.
    """

    rows: Tensor
    reason: str


@dataclass(frozen=True)
class Keep:
    """A ruling that the model as it is now is worth returning to."""


Ruling = str | Rollback | Keep | None


@dataclass(frozen=True)
class GuardContext:
    """What a guard is given when a stream begins.

    Attributes:
        smallest: the fewest samples that the method can learn from.
        source: the source's statistics, where there are any.
        head: the model's head, where it is known.
    """

    smallest: int = 2
    source: SourceStatistics | None = None
    head: nn.Linear | None = None

    def require(self, guard: str) -> tuple[SourceStatistics, nn.Linear]:
        """Statistics and head, for a guard that cannot do without."""
        if self.source is None or self.head is None:
            raise StatisticsError(
                f"The guard {guard} compares features with the source's, and there are no statistics. Pass "
                "source=regtta.collect(model, loader), or leave the guard out."
            )
        return self.source, self.head

    def whitening(self, guard: str) -> Whitening:
        """The source's whitened subspace, for a guard that cannot do without: one for all guards of a stream."""
        self.require(guard)
        return self._whitening

    @cached_property
    def _whitening(self) -> Whitening:
        return Whitening.of(*self.require("of the stream"))


class GuardState:
    """A guard at work on one stream. Lets everything pass; the guards each refuse one thing."""

    unusable: ClassVar[bool] = False
    """Whether its refusal means that nobody should look at the batch any further."""

    def exclude_rows(self, batch: IncomingBatch) -> "Exclusion | None":  # noqa: ARG002 - the question is the same for all
        """Name the samples to leave out of learning, or ``None`` for none; where one process does, all must."""
        return None

    def before_step(self, batch: IncomingBatch) -> Ruling:  # noqa: ARG002 - the question is the same for all
        """Why the batch must not be learned from, or ``None``."""
        return None

    def after_step(self, stats: StepStats) -> Ruling:  # noqa: ARG002 - the question is the same for all
        """Why the step must not stand, or ``None``."""
        return None

    def returned(self) -> None:
        """Told when the model was taken back to an earlier state."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as tensors and plain values; by default nothing."""
        return {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` is one that :meth:`state_dict` could have given; by default, nothing.

        Called before anything is loaded. A guard that overrides ``state_dict`` and not this is not asked.
        """
        require_mapping(path, state, ())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave; by default from nothing."""


@dataclass(frozen=True)
class Guard(GuardState):
    """A guard. One that remembers nothing is its own state; the others override ``start``."""

    needs_source: ClassVar[bool] = False

    def start(self, context: GuardContext) -> GuardState:  # noqa: ARG002 - for those that need it
        """Return the state for one new stream."""
        return self
