"""The monitor: looks at every batch of an adapter, says what it sees, and raises alarms."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from torch import Tensor

from regtta.adapter import Adapter
from regtta.errors import MismatchError, OptionError, StatisticsError
from regtta.identities import same_description
from regtta.monitor.alarms import DEFAULT_ALARMS, Alarm, AlarmSet
from regtta.monitor.events import Event
from regtta.monitor.measuring import SignalEstimator
from regtta.monitor.risk import risk_of_harm
from regtta.monitor.signals import Evidence, Signals
from regtta.monitor.writers import News, Writer
from regtta.options import check_count, check_not_negative, check_share, described, described_by_0_1_0, instances_of
from regtta.sight import StepView
from regtta.state_validation import require_count, require_mapping, require_text
from regtta.steps import Step

_log = logging.getLogger(__name__)


class Monitor:
    """Label-free signals of a stream, with alarms on them.

    Looking costs one pass of the source model a batch, where no guard has made it already; none while the model is
    the source model and nothing is learned.

    Args:
        adapter: with source statistics; predicts and learns exactly as it would without a monitor.
        alarms: what to raise.
        writers: where to write signals and alarms.
        callbacks: called with each :class:`Event`, after the step; they may call the adapter.
        every: look at each n-th batch alone.
        memory: samples to look back on.
        least: samples it takes before anything is said.
        level: probability of a false alarm a batch, for the tests of shift and of steadiness each.
        tolerance: a shift too small to matter, in source standard deviations.

    Attributes:
        signals: those of the last batch looked at; ``None`` before.
        failures: how often each writer or callback failed, by name.
        raised: how often each alarm was raised, by name.

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
            raise OptionError(f"Expected a regtta.Adapter, found {type(adapter).__name__}. Pass the adapter to watch.")
        if adapter.source is None:
            raise StatisticsError(
                "A monitor compares with the source, and the adapter has no statistics. Pass "
                "source=regtta.collect(model, loader) to the adapter."
            )
        check_count("every", every)
        check_count("memory", memory)
        check_count("least", least)
        check_share("level", level)
        check_not_negative("tolerance", tolerance)
        self.adapter = adapter
        example = "(regtta.monitor.ShiftAlarm(),), or () for none"
        self.alarms = instances_of(Alarm, "alarms", alarms, example)  # type: ignore[type-abstract]
        self.writers, self.callbacks = tuple(writers), tuple(callbacks)
        self.every = every
        self._options = {"memory": memory, "least": least, "level": level, "tolerance": tolerance}
        self._gauge = SignalEstimator(
            adapter.source, adapter.source_head(), memory=memory, least=least, level=level, tolerance=tolerance
        )
        self.failures: Counter[str] = Counter()
        self._lock = threading.RLock()  # callbacks may come back to the monitor
        self._begin()

    def _begin(self) -> None:
        self._gauge.begin()
        self._board = AlarmSet(self.alarms)
        self._batches = self._since_helped = 0
        self.signals: Signals | None = None
        self.raised: Counter[str] = Counter()

    def adapt(self, x: object, targets: Tensor | None = None) -> Step:
        """:meth:`Adapter.adapt <regtta.Adapter.adapt>`, then the signals, the alarms, the writers and the callbacks."""
        with self._lock:
            looked: list[StepView] = []
            wanted = self._batches % self.every == 0
            step = self.adapter.adapt(x, targets, look=looked.append if wanted else None)
            self._batches += 1
            for sight in looked:
                self._tell(sight)
            return step

    def run(self, xs: Iterable[object]) -> Iterator[Step]:
        """:meth:`adapt` over a stream, one step a batch."""
        for x in xs:
            yield self.adapt(x)

    @property
    def active(self) -> dict[str, bool]:
        """Every alarm by name, and whether it is raised."""
        return self._board.active()

    def reset(self) -> None:
        """Forget the stream, the adapter's as well; what was written stays."""
        with self._lock:
            self.adapter.reset()
            self._begin()

    def close(self) -> None:
        """Close the writers."""
        for writer in self.writers:
            self._guarded(writer, writer.close)

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Where the monitor stands, beside the adapter's own state: tensors and plain values.

        ADWIN alone is not in it; see :class:`regtta.monitor.DriftAlarm`.
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
        """Go on from :meth:`state_dict`, which must be of the same alarms and options."""
        require_mapping("", state)
        formerly = self._identity(described_by_0_1_0)
        for name, value in self._identity().items():
            if not any(same_description(state.get(name), known) for known in (value, formerly[name])):
                raise MismatchError(
                    f"The state is of a monitor with other {name}: expected {value}, found {state.get(name)}. Make "
                    f"the monitor with the {name} that the stream was begun with."
                )
        with self._lock:
            self._validate(state)
            self._begin()
            self._gauge.load_state_dict(state["gauge"])
            self._board.load_state_dict(state["board"])
            self._batches, self._since_helped = state["batches"], state["since_helped"]
            self.raised = Counter(state["raised"])

    def _validate(self, state: Mapping[str, Any]) -> None:
        """Raise a StateError where the monitor would never have written ``state``; nothing is loaded."""
        require_mapping("", state, ("gauge", "board", "batches", "since_helped", "raised"), others=True)
        self._gauge.validate_state(state["gauge"], "gauge")
        self._board.validate_state(state["board"], "board")
        for name in ("batches", "since_helped"):
            require_count(name, state[name])
        for name, times in require_mapping("raised", state["raised"]).items():
            require_count(f"raised/{require_text('raised', name)}", times)

    def _identity(self, describe: Callable[[object], dict[str, object]] = described) -> dict[str, Any]:
        return {
            "alarms": [describe(alarm) for alarm in self.alarms],
            "options": {**self._options, "every": self.every},
        }

    def _tell(self, sight: StepView) -> None:
        self._gauge.see(sight)
        self.signals = self._signals(sight.step, self._gauge.evidence())
        events = self._board.check(self.signals)
        self.raised.update(event.alarm for event in events if event.kind == "raised")
        news = News(self.signals, events, self.active)
        for writer in self.writers:
            self._guarded(writer, partial(writer.write, news))
        for event in events:
            for callback in self.callbacks:
                self._guarded(callback, partial(callback, event))

    def _signals(self, step: Step, evidence: Evidence | None) -> Signals:
        helped = evidence is not None and evidence.alignment_gain > 0
        self._since_helped = 0 if helped else self._since_helped + self.every
        told = step.diagnostics
        risk = None if evidence is None else risk_of_harm(evidence) if self._gauge.moved else 0.0
        return Signals(
            index=step.index,
            samples=len(step.predictions),
            learned=told.verdict.learned,
            reason=told.verdict.reason,
            returned=told.verdict.returned,
            loss=told.loss,
            displacement=told.displacement,
            count=self._gauge.count,
            evidence=evidence,
            batches_since_helped=self._since_helped,
            risk=risk,
        )

    def _guarded(self, owner: object, work: Callable[[], object]) -> None:
        """Do ``work``; what goes wrong is counted, and logged the first time: no disk that is full stops a stream."""
        name = getattr(owner, "__qualname__", type(owner).__name__)
        try:
            work()
        except Exception as error:  # a writer or a callback may raise anything
            self.failures[name] += 1
            if self.failures[name] == 1:
                # The kind alone: a message could hold something of the data.
                _log.warning("%s failed with %s; the stream goes on", name, type(error).__name__)
