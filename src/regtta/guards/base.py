"""Base classes of guards and the types of their arguments and results.

A guard is a frozen dataclass of thresholds; ``start`` returns its :class:`GuardState` for one stream, which has three
methods. ``exclude_rows`` is called first and returns samples to exclude from learning; later guards do not see them.
``before_step`` may reject the remaining batch before it is learned from, ``after_step`` the step; both return ``None``
to accept, or the reason for the rejection. A rejection leaves weights, running statistics, optimizer and the state of
the method unchanged, and the batch is predicted in eval mode.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor, nn

from regtta.errors import StatisticsError
from regtta.models import Forward
from regtta.persistence import require_mapping
from regtta.statistics import SourceStatistics, Whitening

if TYPE_CHECKING:
    from regtta.guards.chain import IncomingBatch


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

    def exclude_rows(self, batch: "IncomingBatch") -> "Exclusion | None":  # noqa: ARG002 - overridden by subclasses
        """Return the samples to exclude from learning, or ``None``; if one process excludes samples, all must."""
        return None

    def before_step(self, batch: "IncomingBatch") -> Ruling:  # noqa: ARG002 - overridden by subclasses
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
