"""Alarms on the signals of a monitor, each a frozen dataclass of thresholds; users may add their own."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from regtta.guards import ALIGNED_WITH_SOURCE, NO_SHIFT
from regtta.monitoring.signals import Evidence, Signals
from regtta.options import check_fraction, check_non_negative, check_positive, check_positive_int
from regtta.persistence import (
    require_bool,
    require_count,
    require_mapping,
    require_sequence,
    require_str,
    serialized_name,
)


class AlarmState(ABC):
    """Abstract state of an alarm for one stream."""

    @abstractmethod
    def check(self, signals: Signals) -> str | None:
        """Return a message if the alarm is active after these signals, else ``None``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values; empty by default."""
        return {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns; by default, empty.

        Called before anything is loaded. Not called for a state that overrides ``state_dict`` but not this method.
        """
        require_mapping(path, state, ())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - stateless by default
        """Restore the state from :meth:`state_dict`; by default, do nothing."""


class Alarm(ABC):
    """Abstract base class of alarms; subclasses are frozen dataclasses of thresholds.

    Class attributes:
        action: recommended action when the alarm is raised.
    """

    action: ClassVar[str]

    @abstractmethod
    def start(self) -> AlarmState:
        """Return the initial state for a new stream."""

    @property
    def name(self) -> str:
        """Name of the alarm in events; a renamed class keeps its first name."""
        return serialized_name(type(self))


@dataclass(frozen=True)
class PersistentAlarm(Alarm):
    """Abstract alarm on a condition that must hold, or fail, for several consecutive batches.

    Args:
        batches: number of consecutive batches with the condition that raise the alarm, and without it that clear it.
    """

    batches: int = 4

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive_int("batches", self.batches)

    @abstractmethod
    def condition(self, signals: Signals, evidence: Evidence) -> str | None:
        """Return a message if the condition holds for this batch, else ``None``."""

    def start(self) -> AlarmState:
        """Return the initial state for a new stream."""
        return _PersistentState(self)


class _PersistentState(AlarmState):
    def __init__(self, alarm: PersistentAlarm) -> None:
        self.alarm = alarm
        self.run = 0  # consecutive batches that contradict the current state of the alarm
        self.message: str | None = None  # message of the alarm while it is raised

    def check(self, signals: Signals) -> str | None:
        if signals.evidence is None:
            return self.message
        found = self.alarm.condition(signals, signals.evidence)
        self.run = self.run + 1 if (found is None) != (self.message is None) else 0
        if self.run >= self.alarm.batches:
            self.message, self.run = found, 0
        return self.message

    def state_dict(self) -> dict[str, Any]:
        return {"run": self.run, "said": self.message}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("run", "said"))
        require_count(f"{path}/run", found["run"], maximum=self.alarm.batches)
        if found["said"] is not None:
            require_str(f"{path}/said", found["said"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.run, self.message = state["run"], state["said"]


@dataclass(frozen=True)
class ShiftAlarm(PersistentAlarm):
    """Alarm on a feature shift that is significant at the monitor's level and tolerance."""

    action: ClassVar[str] = "Look at what changed in the data. Adapting may help; watch the risk."

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Return a message if the shift is significant."""
        return "features are further from the source's than chance explains" if evidence.beyond_chance > 1 else None


@dataclass(frozen=True)
class NotHelping(PersistentAlarm):
    """Alarm on a significant shift whose misalignment adaptation has not reduced for many batches.

    Args:
        after: number of batches since adaptation last reduced the misalignment.
    """

    batches: int = 1
    after: int = 16

    action: ClassVar[str] = "Adapting does not help here: roll back, try another method, or collect labels and retrain."

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_positive_int("after", self.after)

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:
        """Return a message if the stream is shifted and adaptation has not helped for ``after`` batches."""
        not_helping = signals.batches_since_helped >= self.after and evidence.beyond_chance > 1
        return f"shifted, and no nearer to the source for {self.after} batches or more" if not_helping else None


@dataclass(frozen=True)
class RiskAlarm(PersistentAlarm):
    """Alarm on a high estimated risk that the predictions are worse than those of the source model.

    Args:
        above: risk above which the alarm is raised.
    """

    above: float = 0.7

    action: ClassVar[str] = "Collect labels / retrain now; until then, roll back and freeze."

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_fraction("above", self.above)

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Return a message if the risk exceeds the threshold."""
        high = signals.risk is not None and signals.risk > self.above
        return f"the risk of being worse than the source model is above {self.above:g}" if high else None


@dataclass(frozen=True)
class LabelShiftAlarm(PersistentAlarm):
    """Alarm on a shift that a label shift alone may explain and that moves the outputs of the source model.

    Args:
        limit: largest χ² divergence attributed to a label shift; see :class:`regtta.guards.LabelShiftGuard`.
        moved: smallest shift of the mean of an output, in source standard deviations.
    """

    limit: float = 9.0
    moved: float = 0.5

    action: ClassVar[str] = "Labels may have moved: collect labels. Aligning features would undo what is true."

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_non_negative("limit", self.limit)
        check_positive("moved", self.moved)

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Return a message if there is a shift, a label shift may explain it, and the outputs moved."""
        explained = evidence.beyond_chance > 1 and evidence.reweighting <= self.limit
        outputs = max(abs(mean) for mean in evidence.outputs_source.means)
        return "outputs moved as another mix of labels would move them" if explained and outputs > self.moved else None


@dataclass(frozen=True)
class NonstationarityAlarm(PersistentAlarm):
    """Alarm on a non-stationary stream: it is sorted, arrives in bursts, or drifts."""

    serialized_name: ClassVar[str] = "UnsteadyAlarm"
    action: ClassVar[str] = (
        "Batches are not representative: shuffle, buffer, or guard with regtta.guards.StationarityGuard."
    )

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Return a message if outputs differ significantly between blocks."""
        unsteady = evidence.steadiness is not None and evidence.steadiness > 1
        return "outputs move from block to block more than chance explains" if unsteady else None


@dataclass(frozen=True)
class RejectionAlarm(Alarm):
    """Alarm on many rejected batches, not counting those that the gate rejected as unshifted or already aligned.

    Args:
        share: share of recent batches above which the alarm is raised.
        batches: number of recent batches.
    """

    share: float = 0.5
    batches: int = 32

    serialized_name: ClassVar[str] = "RefusedAlarm"
    action: ClassVar[str] = "Read the reasons in the log, which state what is wrong with the batches or the steps."

    def __post_init__(self) -> None:
        """Validate fields."""
        check_fraction("share", self.share)
        check_positive_int("batches", self.batches)

    def start(self) -> AlarmState:
        """Return the initial state for a new stream."""
        return _RejectionState(self)


class _RejectionState(AlarmState):
    def __init__(self, alarm: RejectionAlarm) -> None:
        self.alarm = alarm
        self.rejected: deque[bool] = deque(maxlen=alarm.batches)

    def check(self, signals: Signals) -> str | None:
        self.rejected.append(not signals.learned and signals.reason not in (NO_SHIFT, ALIGNED_WITH_SOURCE))
        too_many = sum(self.rejected) > self.alarm.share * self.alarm.batches
        return f"more than {self.alarm.share:.0%} of {self.alarm.batches} batches were rejected" if too_many else None

    def state_dict(self) -> dict[str, Any]:
        return {"refused": list(self.rejected)}

    def validate_state(self, state: object, path: str) -> None:
        refused = require_mapping(path, state, ("refused",))["refused"]
        for number, value in enumerate(require_sequence(f"{path}/refused", refused, maximum=self.alarm.batches)):
            require_bool(f"{path}/refused/{number}", value)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rejected = deque(state["refused"], maxlen=self.alarm.batches)


DEFAULT_ALARMS: tuple[Alarm, ...] = (
    ShiftAlarm(),
    NotHelping(),
    RiskAlarm(),
    LabelShiftAlarm(),
    NonstationarityAlarm(),
    RejectionAlarm(),
)
"""Default alarms, which need no optional packages."""
