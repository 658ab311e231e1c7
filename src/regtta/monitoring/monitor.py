"""Monitor of an adapter, which computes signals after each batch and raises alarms."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from torch import Tensor

from regtta.adapter import Adapter
from regtta.engine import StepView
from regtta.errors import MismatchError, OptionError, StatisticsError
from regtta.monitoring.alarm_set import AlarmSet
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
)
from regtta.types import Step

_log = logging.getLogger(__name__)


class Monitor:
    """Label-free monitor of a stream, with alarms.

    Monitoring costs one forward pass of the source model per batch, unless a guard has already computed it. It costs
    none while the model equals the source model and nothing is learned.

    Args:
        adapter: adapter with source statistics; the monitor does not change its predictions or learning.
        alarms: alarms to raise.
        writers: writers of signals and alarms.
        callbacks: called with each :class:`Event` after the step; they may call the adapter.
        every: monitor only every n-th batch.
        memory: time constant of the moments, in samples.
        least: number of samples required before evidence is available.
        level: significance level per batch, for each of the tests for shift and stationarity.
        tolerance: largest shift to ignore, in source standard deviations.

    Attributes:
        signals: signals of the last monitored batch; ``None`` before the first.
        failures: number of failures of each writer or callback, by name.
        raised: number of times each alarm was raised, by name.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).eval()
        >>> source = regtta.collect(model, torch.randn(500, 3).split(50))
        >>> monitor = regtta.Monitor(regtta.Adapter(model, regtta.SSA(k=2), source))
        >>> for x in (torch.randn(800, 3) + 2).split(50):
        ...     step = monitor.adapt(x)
        >>> monitor.signals.evidence.beyond_chance > 1, monitor.active["ShiftAlarm"]
        (True, True)
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        alarms: Sequence[Alarm] = DEFAULT_ALARMS,
        writers: Sequence[Writer] = (),
        callbacks: Sequence[Callable[[Event], object]] = (),
        every: int = 1,
        memory: int = 256,
        least: int = 32,
        level: float = 1e-4,
        tolerance: float = 0.1,
    ) -> None:
        if not isinstance(adapter, Adapter):
            raise OptionError(f"Expected a regtta.Adapter, found {type(adapter).__name__}. Pass the one to monitor.")
        if adapter.source is None:
            raise StatisticsError(
                "A monitor needs source statistics, but the adapter has none. Pass "
                "source=regtta.collect(model, loader) to the adapter."
            )
        check_positive_int("every", every)
        check_positive_int("memory", memory)
        check_positive_int("least", least)
        check_fraction("level", level)
        check_non_negative("tolerance", tolerance)
        self.adapter = adapter
        example = "(regtta.monitoring.ShiftAlarm(),), or () for none"
        self.alarms = check_instances(Alarm, "alarms", alarms, example)  # type: ignore[type-abstract]
        self.writers, self.callbacks = tuple(writers), tuple(callbacks)
        self.every = every
        self._options = {"memory": memory, "least": least, "level": level, "tolerance": tolerance}
        self._gauge = SignalEstimator(
            adapter.source, adapter.source_head(), memory=memory, least=least, level=level, tolerance=tolerance
        )
        self.failures: Counter[str] = Counter()
        self._lock = threading.RLock()  # reentrant, since callbacks may call the monitor
        self._begin()

    def _begin(self) -> None:
        self._gauge.reset()
        self._board = AlarmSet(self.alarms)
        self._batches = self._since_helped = 0
        self.signals: Signals | None = None
        self.raised: Counter[str] = Counter()

    def adapt(self, x: object, targets: Tensor | None = None) -> Step:
        """Call :meth:`Adapter.adapt <regtta.Adapter.adapt>`, update signals and alarms, and return the step."""
        with self._lock:
            views: list[StepView] = []
            monitored = self._batches % self.every == 0
            step = self.adapter.adapt(x, targets, look=views.append if monitored else None)
            self._batches += 1
            for view in views:
                self._update(view)
            return step

    def run(self, xs: Iterable[object]) -> Iterator[Step]:
        """Call :meth:`adapt` for each batch of a stream and yield the steps."""
        for x in xs:
            yield self.adapt(x)

    @property
    def active(self) -> dict[str, bool]:
        """Dict from the name of every alarm to True if it is raised."""
        return self._board.active()

    def reset(self) -> None:
        """Reset monitor and adapter for a new stream; files written so far are kept."""
        with self._lock:
            self.adapter.reset()
            self._begin()

    def close(self) -> None:
        """Close the writers."""
        for writer in self.writers:
            self._call_safely(writer, writer.close)

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the monitor, without that of the adapter, as tensors and plain values.

        The state of ADWIN is not included; see :class:`regtta.monitoring.DriftAlarm`.
        """
        with self._lock:
            return {
                **self._identity(),
                "gauge": self._gauge.state_dict(),
                "board": self._board.state_dict(),
                "batches": self._batches,
                "since_helped": self._since_helped,
                "raised": dict(self.raised),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict` of a monitor with the same alarms and options."""
        require_mapping("", state)
        formerly = self._identity(to_dict_v0_1_0)
        for name, value in self._identity().items():
            if not any(same_description(state.get(name), known) for known in (value, formerly[name])):
                raise MismatchError(
                    f"The state belongs to a monitor with other {name}: expected {value}, found {state.get(name)}. "
                    f"Create the monitor with the {name} that the stream was started with."
                )
        with self._lock:
            self._validate(state)
            self._begin()
            self._gauge.load_state_dict(state["gauge"])
            self._board.load_state_dict(state["board"])
            self._batches, self._since_helped = state["batches"], state["since_helped"]
            self.raised = Counter(state["raised"])

    def _validate(self, state: Mapping[str, Any]) -> None:
        """Raise a StateError unless ``state`` has the form that :meth:`state_dict` returns; nothing is loaded."""
        require_mapping("", state, ("gauge", "board", "batches", "since_helped", "raised"), others=True)
        self._gauge.validate_state(state["gauge"], "gauge")
        self._board.validate_state(state["board"], "board")
        for name in ("batches", "since_helped"):
            require_count(name, state[name])
        for name, times in require_mapping("raised", state["raised"]).items():
            require_count(f"raised/{require_str('raised', name)}", times)

    def _identity(self, describe: Callable[[object], dict[str, object]] = to_dict) -> dict[str, Any]:
        return {
            "alarms": [describe(alarm) for alarm in self.alarms],
            "options": {**self._options, "every": self.every},
        }

    def _update(self, view: StepView) -> None:
        self._gauge.update(view)
        self.signals = self._signals(view.step, self._gauge.evidence())
        events = self._board.check(self.signals)
        self.raised.update(event.alarm for event in events if event.kind == "raised")
        report = MonitorReport(self.signals, events, self.active)
        for writer in self.writers:
            self._call_safely(writer, partial(writer.write, report))
        for event in events:
            for callback in self.callbacks:
                self._call_safely(callback, partial(callback, event))

    def _signals(self, step: Step, evidence: Evidence | None) -> Signals:
        helped = evidence is not None and evidence.alignment_gain > 0
        self._since_helped = 0 if helped else self._since_helped + self.every
        diagnostics = step.diagnostics
        risk = None if evidence is None else risk_of_harm(evidence) if self._gauge.moved else 0.0
        return Signals(
            index=step.index,
            samples=len(step.predictions),
            learned=diagnostics.verdict.learned,
            reason=diagnostics.verdict.reason,
            returned=diagnostics.verdict.returned,
            loss=diagnostics.loss,
            displacement=diagnostics.displacement,
            count=self._gauge.count,
            evidence=evidence,
            batches_since_helped=self._since_helped,
            risk=risk,
        )

    def _call_safely(self, owner: object, work: Callable[[], object]) -> None:
        """Call ``work``; count errors and log the first, so that a full disk, for example, does not stop the stream."""
        name = getattr(owner, "__qualname__", type(owner).__name__)
        try:
            work()
        except Exception as error:  # a writer or a callback may raise anything
            self.failures[name] += 1
            if self.failures[name] == 1:
                # Log the type only, since the message could disclose data.
                _log.warning("%s failed with %s; the stream continues", name, type(error).__name__)
