"""Monitor of an adapter, which computes signals after each batch and raises alarms."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from regtta.adapter import Adapter
from regtta.errors import MismatchError, OptionError, StatisticsError
from regtta.monitoring.alarms import DEFAULT_ALARMS, Alarm
from regtta.monitoring.estimator import SignalEstimator, risk_of_harm
from regtta.monitoring.signals import Evidence, Signals
from regtta.monitoring.writers import Event, MonitorReport, Writer
from regtta.options import check_fraction, check_instances, check_non_negative, check_positive_int
from regtta.persistence import (
    require_count,
    require_mapping,
    require_str,
    same_description,
    to_dict,
    to_dict_v0_1_0,
    validate_part,
)
from regtta.types import Callback, Step, StepView

_log = logging.getLogger(__name__)


class AlarmSet:
    """All alarms of one stream, which emits an event when an alarm is raised or cleared."""

    def __init__(self, alarms: Sequence[Alarm]) -> None:
        self.alarms = tuple(alarms)
        self.states = [alarm.start() for alarm in self.alarms]
        self.messages: list[str | None] = [None] * len(self.alarms)

    def check(self, signals: Signals) -> list[Event]:
        """Update all alarms and return the events of those that were raised or cleared."""
        events = []
        for number, (alarm, alarm_state) in enumerate(zip(self.alarms, self.states, strict=True)):
            before, now = self.messages[number], alarm_state.check(signals)
            self.messages[number] = now
            if now is not None and before is None:
                events.append(Event("raised", alarm.name, signals.index, now, alarm.action))
            if now is None and before is not None:
                events.append(Event("cleared", alarm.name, signals.index, before, ""))
        return events

    def active(self) -> dict[str, bool]:
        """Return a dict from the name of every alarm to True if it is raised."""
        found: dict[str, bool] = {}
        for alarm, message in zip(self.alarms, self.messages, strict=True):
            found[alarm.name] = found.get(alarm.name, False) or message is not None
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all alarms, by position."""
        return {
            str(number): {"said": message, "watch": alarm_state.state_dict()}
            for number, (message, alarm_state) in enumerate(zip(self.messages, self.states, strict=True))
        }

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError if an alarm rejects its part of ``state``."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.states))])
        for number, alarm_state in enumerate(self.states):
            at = f"{path}/{number}"
            part = require_mapping(at, found[str(number)], ("said", "watch"))
            if part["said"] is not None:
                require_str(f"{at}/said", part["said"])
            validate_part(alarm_state, part["watch"], f"{at}/watch")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`."""
        for number, alarm_state in enumerate(self.states):
            self.messages[number] = state[str(number)]["said"]
            alarm_state.load_state_dict(state[str(number)]["watch"])


class Monitor(Callback):
    """Label-free monitor of a stream, with alarms: ``Adapter(..., callbacks=[Monitor()])``.

    The adapter must have source statistics; its predictions and learning do not change.

    Monitoring costs one forward pass of the source model per batch, unless a guard has already computed it. It costs
    none while the model equals the source model and nothing is learned.

    Args:
        alarms: alarms to raise.
        writers: writers of signals and alarms.
        on_event: functions that are called with each :class:`Event` after the step; they may call the adapter.
        every: monitor only every n-th batch.
        memory: time constant of the moments, in samples.
        least: number of samples required before evidence is available.
        level: significance level per batch, for each of the tests for shift and stationarity.
        tolerance: largest shift to ignore, in source standard deviations.

    Attributes:
        adapter: the adapter; ``None`` before the monitor is passed to one.
        signals: signals of the last monitored batch; ``None`` before the first.
        failures: number of failures of each writer or function of ``on_event``, by name.
        raised: number of times each alarm was raised, by name.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).eval()
        >>> source = regtta.collect(model, torch.randn(500, 3).split(50))
        >>> monitor = regtta.Monitor()
        >>> adapter = regtta.Adapter(model, regtta.SSA(k=2), source, callbacks=[monitor])
        >>> for x in (torch.randn(800, 3) + 2).split(50):
        ...     step = adapter.adapt(x)
        >>> monitor.signals.evidence.beyond_chance > 1, monitor.active["ShiftAlarm"]
        (True, True)
    """

    state_key: ClassVar[str | None] = "monitor"

    def __init__(
        self,
        *,
        alarms: Sequence[Alarm] = DEFAULT_ALARMS,
        writers: Sequence[Writer] = (),
        on_event: Sequence[Callable[[Event], object]] = (),
        every: int = 1,
        memory: int = 256,
        least: int = 32,
        level: float = 1e-4,
        tolerance: float = 0.1,
    ) -> None:
        check_positive_int("every", every)
        check_positive_int("memory", memory)
        check_positive_int("least", least)
        check_fraction("level", level)
        check_non_negative("tolerance", tolerance)
        example = "(regtta.monitoring.ShiftAlarm(),), or () for none"
        self.alarms = check_instances(Alarm, "alarms", alarms, example)  # type: ignore[type-abstract]
        self.writers, self.on_event = tuple(writers), tuple(on_event)
        self.every = every
        self._options: dict[str, Any] = {"memory": memory, "least": least, "level": level, "tolerance": tolerance}
        self.adapter: Adapter | None = None
        self.failures: Counter[str] = Counter()
        self._alarm_set = AlarmSet(self.alarms)
        self._batches = self._since_helped = 0
        self.signals: Signals | None = None
        self.raised: Counter[str] = Counter()

    def on_start(self, adapter: Adapter) -> None:
        """Start monitoring a stream; files written so far are kept."""
        if self.adapter is not None and self.adapter is not adapter:
            raise OptionError("This monitor already follows another adapter. Create one monitor per adapter.")
        if adapter.source is None:
            raise StatisticsError(
                "A monitor needs source statistics, but the adapter has none. Pass "
                "source=regtta.collect(model, loader) to the adapter."
            )
        if self.adapter is None:
            self.adapter = adapter
            self._estimator = SignalEstimator(adapter.source, adapter.source_head(), **self._options)
        self._begin()

    def _begin(self) -> None:
        self._estimator.reset()
        self._alarm_set = AlarmSet(self.alarms)
        self._batches = self._since_helped = 0
        self.signals = None
        self.raised = Counter()

    def wants_view(self, index: int) -> bool:  # noqa: ARG002 - every n-th batch since the monitor was started
        """Return True for every n-th batch."""
        return self._batches % self.every == 0

    def on_step(self, adapter: Adapter, step: Step) -> None:  # noqa: ARG002 - views hold the step
        """Count the batch."""
        self._batches += 1

    @property
    def active(self) -> dict[str, bool]:
        """Dict from the name of every alarm to True if it is raised."""
        return self._alarm_set.active()

    def on_end(self, adapter: Adapter) -> None:  # noqa: ARG002 - the writers are the monitor's own
        """Close the writers."""
        self.close()

    def close(self) -> None:
        """Close the writers."""
        for writer in self.writers:
            self._call_safely(writer, writer.close)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the monitor, without that of the adapter, as tensors and plain values.

        The state of ADWIN is not included; see :class:`regtta.monitoring.DriftAlarm`.
        """
        self._check_attached()
        return {
            **self._identity(),
            "gauge": self._estimator.state_dict(),
            "board": self._alarm_set.state_dict(),
            "batches": self._batches,
            "since_helped": self._since_helped,
            "raised": dict(self.raised),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict` of a monitor with the same alarms and options."""
        self._check_attached()
        require_mapping("", state)
        formerly = self._identity(to_dict_v0_1_0)
        for name, value in self._identity().items():
            if not any(same_description(state.get(name), known) for known in (value, formerly[name])):
                raise MismatchError(
                    f"The state belongs to a monitor with other {name}: expected {value}, found {state.get(name)}. "
                    f"Create the monitor with the {name} that the stream was started with."
                )
        self._validate(state)
        self._begin()
        self._estimator.load_state_dict(state["gauge"])
        self._alarm_set.load_state_dict(state["board"])
        self._batches, self._since_helped = state["batches"], state["since_helped"]
        self.raised = Counter(state["raised"])

    def _check_attached(self) -> None:
        if self.adapter is None:
            raise MismatchError("The monitor follows no adapter. Pass it to one: Adapter(..., callbacks=[monitor]).")

    def _validate(self, state: Mapping[str, Any]) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns; nothing is loaded."""
        require_mapping("", state, ("gauge", "board", "batches", "since_helped", "raised"), others=True)
        self._estimator.validate_state(state["gauge"], "gauge")
        self._alarm_set.validate_state(state["board"], "board")
        for name in ("batches", "since_helped"):
            require_count(name, state[name])
        for name, times in require_mapping("raised", state["raised"]).items():
            require_count(f"raised/{require_str('raised', name)}", times)

    def _identity(self, describe: Callable[[object], dict[str, object]] = to_dict) -> dict[str, Any]:
        return {
            "alarms": [describe(alarm) for alarm in self.alarms],
            "options": {**self._options, "every": self.every},
        }

    def on_view(self, adapter: Adapter, view: StepView) -> None:  # noqa: ARG002 - the view holds all it needs
        """Update signals and alarms, and call writers and event handlers."""
        self._estimator.update(view)
        self.signals = self._signals(view.step, self._estimator.evidence())
        events = self._alarm_set.check(self.signals)
        self.raised.update(event.alarm for event in events if event.kind == "raised")
        report = MonitorReport(self.signals, events, self.active)
        for writer in self.writers:
            self._call_safely(writer, partial(writer.write, report))
        for event in events:
            for handler in self.on_event:
                self._call_safely(handler, partial(handler, event))

    def _signals(self, step: Step, evidence: Evidence | None) -> Signals:
        helped = evidence is not None and evidence.alignment_gain > 0
        self._since_helped = 0 if helped else self._since_helped + self.every
        diagnostics = step.diagnostics
        risk = None if evidence is None else risk_of_harm(evidence) if self._estimator.moved else 0.0
        return Signals(
            index=step.index,
            samples=len(step.predictions),
            learned=diagnostics.verdict.learned,
            reason=diagnostics.verdict.reason,
            returned=diagnostics.verdict.returned,
            loss=diagnostics.loss,
            displacement=diagnostics.displacement,
            count=self._estimator.count,
            evidence=evidence,
            batches_since_helped=self._since_helped,
            risk=risk,
        )

    def _call_safely(self, owner: object, work: Callable[[], object]) -> None:
        """Call ``work``; count errors and log the first, so that a full disk, for example, does not stop the stream."""
        name = getattr(owner, "__qualname__", type(owner).__name__)
        try:
            work()
        except Exception as error:  # a writer or an event handler may raise anything
            self.failures[name] += 1
            if self.failures[name] == 1:
                # Log the type only, since the message could disclose data.
                _log.warning("%s failed with %s; the stream continues", name, type(error).__name__)
