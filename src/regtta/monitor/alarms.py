"""Alarms on the signals. An alarm is one frozen type here; users combine them as they like, and write their own."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regtta.guards.gate import ALIGNED, NO_SHIFT
from regtta.monitor.events import Event
from regtta.monitor.signals import Evidence, Signals
from regtta.options import check_count, check_not_negative, check_positive, check_share
from regtta.state_validation import (
    require_count,
    require_flag,
    require_mapping,
    require_sequence,
    require_text,
    validate_part,
)


class AlarmWatch(ABC):
    """An alarm at work on one stream. Abstract."""

    @abstractmethod
    def check(self, signals: Signals) -> str | None:
        """What is wrong now, in words, or ``None``."""

    def state_dict(self) -> dict[str, Any]:
        """What the watch remembers, as plain values; by default nothing."""
        return {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` is one that :meth:`state_dict` could have given; by default, nothing.

        Called before anything is loaded. A watch that overrides ``state_dict`` and not this is not asked.
        """
        require_mapping(path, state, ())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - nothing is a fine default
        """Go on from what :meth:`state_dict` gave; by default from nothing."""


class Alarm(ABC):
    """An alarm. Abstract; the others are frozen dataclasses of thresholds.

    Class attributes:
        action: what to do when it is raised.
    """

    action: ClassVar[str]

    @abstractmethod
    def start(self) -> AlarmWatch:
        """The watch for one new stream."""

    @property
    def name(self) -> str:
        """What it is called in events."""
        return type(self).__name__


@dataclass(frozen=True)
class Lasting(Alarm):
    """An alarm on evidence that lasts. Abstract: a condition, and how long it must hold, or fail, to count.

    Args:
        batches: how many in a row raise the alarm, and how many without clear it.
    """

    batches: int = 4

    def __post_init__(self) -> None:
        """Validate fields."""
        check_count("batches", self.batches)

    @abstractmethod
    def condition(self, signals: Signals, evidence: Evidence) -> str | None:
        """What is wrong at this batch, in words, or ``None``."""

    def start(self) -> AlarmWatch:
        """A watch that has seen nothing yet."""
        return _LastingWatch(self)


class _LastingWatch(AlarmWatch):
    def __init__(self, alarm: Lasting) -> None:
        self.alarm = alarm
        self.run = 0  # batches in a row that contradict what is said now
        self.said: str | None = None

    def check(self, signals: Signals) -> str | None:
        if signals.evidence is None:
            return self.said  # nothing to change it by
        found = self.alarm.condition(signals, signals.evidence)
        self.run = self.run + 1 if (found is None) != (self.said is None) else 0
        if self.run >= self.alarm.batches:
            self.said, self.run = found, 0
        return self.said

    def state_dict(self) -> dict[str, Any]:
        return {"run": self.run, "said": self.said}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("run", "said"))
        require_count(f"{path}/run", found["run"], most=self.alarm.batches)
        if found["said"] is not None:
            require_text(f"{path}/said", found["said"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.run, self.said = state["run"], state["said"]


@dataclass(frozen=True)
class ShiftAlarm(Lasting):
    """The features are further from the source's than chance explains, at the monitor's level and tolerance."""

    action: ClassVar[str] = "Look at what changed in the data. Adapting may help; watch the risk."

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Compare with what chance explains."""
        return "features are further from the source's than chance explains" if evidence.beyond_chance > 1 else None


@dataclass(frozen=True)
class NotHelping(Lasting):
    """There is a shift, and adapting has not brought the features nearer for long.

    Args:
        after: batches since it last did.
    """

    batches: int = 1
    after: int = 16

    action: ClassVar[str] = "Adapting does not help here: roll back, try another method, or collect labels and retrain."

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_count("after", self.after)

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:
        """Count the batches, while shifted."""
        helpless = signals.batches_since_helped >= self.after and evidence.beyond_chance > 1
        return f"shifted, and no nearer to the source for {self.after} batches or more" if helpless else None


@dataclass(frozen=True)
class RiskAlarm(Lasting):
    """Predictions are probably worse than the source model's.

    Args:
        above: the risk that is too high.
    """

    above: float = 0.7

    action: ClassVar[str] = "Collect labels / retrain now; until then, roll back and freeze."

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_share("above", self.above)

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Compare with the threshold."""
        high = signals.risk is not None and signals.risk > self.above
        return f"the risk of being worse than the source model is above {self.above:g}" if high else None


@dataclass(frozen=True)
class LabelShiftAlarm(Lasting):
    """The shift could be one of the labels alone, and the source model's outputs moved with it.

    Args:
        limit: χ² divergence that a change in the mix of labels may have; see
            :class:`regtta.guards.BeyondReweighting`.
        moved: how far the mean of an output must be from the source's, in its standard deviations.
    """

    limit: float = 9.0
    moved: float = 0.5

    action: ClassVar[str] = "Labels may have moved: collect labels. Aligning features would undo what is true."

    def __post_init__(self) -> None:
        """Validate fields."""
        super().__post_init__()
        check_not_negative("limit", self.limit)
        check_positive("moved", self.moved)

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Ask whether there is a shift, whether another mix explains it, and whether outputs moved."""
        explained = evidence.beyond_chance > 1 and evidence.reweighting <= self.limit
        outputs = max(abs(mean) for mean in evidence.outputs_source.means)
        return "outputs moved as another mix of labels would move them" if explained and outputs > self.moved else None


@dataclass(frozen=True)
class UnsteadyAlarm(Lasting):
    """Outputs move from block to block: the stream is sorted, comes in bursts, or drifts."""

    action: ClassVar[str] = "Batches are one-sided: shuffle, buffer, or guard with regtta.guards.SteadyStream."

    def condition(self, signals: Signals, evidence: Evidence) -> str | None:  # noqa: ARG002
        """Compare with what chance explains."""
        unsteady = evidence.steadiness is not None and evidence.steadiness > 1
        return "outputs move from block to block more than chance explains" if unsteady else None


@dataclass(frozen=True)
class RefusedAlarm(Alarm):
    """Many batches were refused, other than by a gate that is at rest: no shift, or one that is aligned by now.

    Args:
        share: of the batches of late that is too many.
        batches: how many those are.
    """

    share: float = 0.5
    batches: int = 32

    action: ClassVar[str] = "Read the reasons in the log: they say what is wrong with the batches, or with the steps."

    def __post_init__(self) -> None:
        """Validate fields."""
        check_share("share", self.share)
        check_count("batches", self.batches)

    def start(self) -> AlarmWatch:
        """A watch that has seen nothing yet."""
        return _RefusedWatch(self)


class _RefusedWatch(AlarmWatch):
    def __init__(self, alarm: RefusedAlarm) -> None:
        self.alarm = alarm
        self.refused: deque[bool] = deque(maxlen=alarm.batches)

    def check(self, signals: Signals) -> str | None:
        self.refused.append(not signals.learned and signals.reason not in (NO_SHIFT, ALIGNED))
        too_many = sum(self.refused) > self.alarm.share * self.alarm.batches
        return f"more than {self.alarm.share:.0%} of {self.alarm.batches} batches were refused" if too_many else None

    def state_dict(self) -> dict[str, Any]:
        return {"refused": list(self.refused)}

    def validate_state(self, state: object, path: str) -> None:
        refused = require_mapping(path, state, ("refused",))["refused"]
        for number, value in enumerate(require_sequence(f"{path}/refused", refused, most=self.alarm.batches)):
            require_flag(f"{path}/refused/{number}", value)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.refused = deque(state["refused"], maxlen=self.alarm.batches)


class AlarmSet:
    """All alarms of a stream: tells when one begins and when it ends, and nothing in between."""

    def __init__(self, alarms: Sequence[Alarm]) -> None:
        self.alarms = tuple(alarms)
        self.watches = [alarm.start() for alarm in self.alarms]
        self.said: list[str | None] = [None] * len(self.alarms)

    def check(self, signals: Signals) -> list[Event]:
        """The alarms that begin or end with these signals."""
        events = []
        for number, (alarm, watch) in enumerate(zip(self.alarms, self.watches, strict=True)):
            before, now = self.said[number], watch.check(signals)
            self.said[number] = now
            if now is not None and before is None:
                events.append(Event("raised", alarm.name, signals.index, now, alarm.action))
            if now is None and before is not None:
                events.append(Event("cleared", alarm.name, signals.index, before, ""))
        return events

    def active(self) -> dict[str, bool]:
        """Every alarm by name, and whether it is raised."""
        found: dict[str, bool] = {}
        for alarm, said in zip(self.alarms, self.said, strict=True):
            found[alarm.name] = found.get(alarm.name, False) or said is not None
        return found

    def state_dict(self) -> dict[str, Any]:
        """What each remembers, by its number."""
        return {
            str(number): {"said": said, "watch": watch.state_dict()}
            for number, (said, watch) in enumerate(zip(self.said, self.watches, strict=True))
        }

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError where a watch says that its part of ``state`` is not of its own form."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.watches))])
        for number, watch in enumerate(self.watches):
            at = f"{path}/{number}"
            part = require_mapping(at, found[str(number)], ("said", "watch"))
            if part["said"] is not None:
                require_text(f"{at}/said", part["said"])
            validate_part(watch, part["watch"], f"{at}/watch")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for number, watch in enumerate(self.watches):
            self.said[number] = state[str(number)]["said"]
            watch.load_state_dict(state[str(number)]["watch"])


DEFAULT_ALARMS: tuple[Alarm, ...] = (
    ShiftAlarm(),
    NotHelping(),
    RiskAlarm(),
    LabelShiftAlarm(),
    UnsteadyAlarm(),
    RefusedAlarm(),
)
"""Those that need nothing but the core."""
