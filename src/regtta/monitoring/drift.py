"""Alarm on a change in the mean of a signal, detected by Page–Hinkley or ADWIN."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

from regtta.monitoring.alarms import Alarm, AlarmState
from regtta.monitoring.signals import SCALARS, Signals
from regtta.optional_imports import import_optional
from regtta.options import check_choice, check_fraction, check_non_negative, check_positive, check_positive_int
from regtta.persistence import require_count, require_mapping, require_number, validate_part

DetectorName = Literal["page_hinkley", "adwin"]


@dataclass(frozen=True)
class DriftAlarm(Alarm):
    """Alarm on a change in the mean of a signal.

    Args:
        detector: ``"page_hinkley"``, which detects increases, or river's ``"adwin"``
            (``pip install 'regtta[monitor]'``), which detects changes in both directions. The state of ADWIN is not
            saved: a resumed stream restarts it.
        signal: one of :data:`regtta.monitoring.SCALARS`.
        hold: number of batches for which the alarm stays raised after the last change.
        least: number of values required before a change can be detected, for Page–Hinkley.
        delta: largest change to ignore, for Page–Hinkley.
        threshold: cumulative deviation from the mean above which a change is detected, for Page–Hinkley.
        confidence: significance level, for ADWIN.
    """

    detector: DetectorName = "page_hinkley"
    signal: str = "shift_source"
    hold: int = 32
    least: int = 30
    delta: float = 0.01
    threshold: float = 1.0
    confidence: float = 0.002

    action: ClassVar[str] = "Look at what changed in the data at that time; a retrained model may be due."

    def __post_init__(self) -> None:
        """Validate fields, and raise early if river is needed and not installed."""
        check_choice("detector", self.detector, get_args(DetectorName))
        check_choice("signal", self.signal, SCALARS)
        check_positive_int("hold", self.hold)
        check_positive_int("least", self.least)
        check_non_negative("delta", self.delta)
        check_positive("threshold", self.threshold)
        check_fraction("confidence", self.confidence)
        if self.detector == "adwin":
            import_optional("river.drift", "monitor", "The ADWIN detector")

    def start(self) -> AlarmState:
        """Return the initial state for a new stream."""
        if self.detector == "adwin":
            return _DriftState(self, _Adwin(self.confidence))
        return _DriftState(self, PageHinkley(self.least, self.delta, self.threshold))


class Detector(Protocol):
    """Protocol of change detectors for a stream of numbers."""

    def changed(self, value: float) -> bool: ...  # noqa: D102

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...  # noqa: D102


class PageHinkley:
    """Page–Hinkley test for an increase in the mean, which restarts after each detection.

    An increase is detected when ``S_t − min_{u≤t} S_u`` exceeds the threshold, with ``S_t = Σ_{i≤t} (x_i − x̄_i − δ)``.

    Example:
        >>> test = PageHinkley(least=10, delta=0.01, threshold=1.0)
        >>> [i for i in range(60) if test.changed(0.0 if i < 30 else 0.5)]
        [32]
    """

    def __init__(self, least: int, delta: float, threshold: float) -> None:
        self.least, self.delta, self.threshold = least, delta, threshold
        self._begin()

    def _begin(self) -> None:
        self.count, self.mean, self.sum, self.lowest = 0, 0.0, 0.0, float("inf")

    def changed(self, value: float) -> bool:
        """Update the test with a value and return True if it detects an increase."""
        self.count += 1
        self.mean += (value - self.mean) / self.count
        self.sum += value - self.mean - self.delta
        self.lowest = min(self.lowest, self.sum)
        found = self.count >= self.least and self.sum - self.lowest > self.threshold
        if found:
            self._begin()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"count": self.count, "mean": self.mean, "sum": self.sum, "lowest": self.lowest}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns."""
        found = require_mapping(path, state, ("count", "mean", "sum", "lowest"))
        count = require_count(f"{path}/count", found["count"])
        for name in ("mean", "sum", "lowest"):
            if count or found[name] != float("inf"):  # infinite before the first value
                require_number(f"{path}/{name}", found[name])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`."""
        self.count, self.mean = state["count"], state["mean"]
        self.sum, self.lowest = state["sum"], state["lowest"]


class _Adwin:
    def __init__(self, confidence: float) -> None:
        self.test = import_optional("river.drift", "monitor", "The ADWIN detector").ADWIN(delta=confidence)

    def changed(self, value: float) -> bool:
        self.test.update(value)
        return bool(self.test.drift_detected)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: river does not expose the buckets of ADWIN, so the detector restarts."""


class _DriftState(AlarmState):
    def __init__(self, alarm: DriftAlarm, detector: Detector) -> None:
        self.alarm = alarm
        self.detector = detector
        self.left = 0

    def check(self, signals: Signals) -> str | None:
        value = signals.scalars().get(self.alarm.signal)
        self.left = max(self.left - 1, 0)
        if value is not None and self.detector.changed(value):
            self.left = self.alarm.hold
        return f"the level of {self.alarm.signal} changed" if self.left else None

    def state_dict(self) -> dict[str, Any]:
        return {"left": self.left, "detector": self.detector.state_dict()}

    def validate_state(self, state: object, path: str) -> None:
        found = require_mapping(path, state, ("left", "detector"))
        require_count(f"{path}/left", found["left"], maximum=self.alarm.hold)
        validate_part(self.detector, found["detector"], f"{path}/detector")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.left = state["left"]
        self.detector.load_state_dict(state["detector"])
