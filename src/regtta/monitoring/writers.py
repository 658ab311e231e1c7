"""Events of a monitor and the writers of its signals: JSON lines, TensorBoard, Prometheus."""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from regtta.errors import FileError
from regtta.monitoring.signals import Signals
from regtta.optional_imports import import_optional
from regtta.persistence import atomic_write, check_not_existing


@dataclass(frozen=True)
class Event:
    """Event of an alarm that was raised or cleared.

    Attributes:
        kind: ``"raised"`` or ``"cleared"``.
        alarm: name of the alarm.
        index: index of the batch.
        message: description of the condition.
        action: recommended action; empty if the alarm was cleared.
    """

    kind: Literal["raised", "cleared"]
    alarm: str
    index: int
    message: str
    action: str

    def to_dict(self) -> dict[str, object]:
        """Return the event as values that JSON can represent."""
        return asdict(self)


@dataclass(frozen=True)
class MonitorReport:
    """Update that a writer receives after a batch.

    Attributes:
        signals: signals of the batch.
        events: alarms that were raised or cleared by it.
        active: dict from the name of every alarm to True if it is raised.
    """

    signals: Signals
    events: Sequence[Event]
    active: dict[str, bool]


class Writer(ABC):
    """Abstract base class of writers. The monitor logs errors that a writer raises, and the stream continues."""

    @abstractmethod
    def write(self, report: MonitorReport) -> None:
        """Write the signals and events of one batch."""

    def close(self) -> None:  # noqa: B027 - no resources by default
        """Release open resources; by default, do nothing."""


class JsonLines(Writer):
    """Writer that appends one JSON object per batch, and one per alarm that is raised or cleared.

    Each object is one line with a ``"type"`` of ``"signals"`` or ``"event"``, written immediately. The file is reopened
    for each batch, so that it can be rotated at any time.

    Args:
        path: path of the file; existing content is kept.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = check_not_existing(path, overwrite=True)
        try:
            self._path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise FileError(f"Could not write {path}: {error}.") from error

    def write(self, report: MonitorReport) -> None:
        """Append the lines of one batch in a single write."""
        objects = [{"type": "signals", **report.signals.to_dict()}]
        objects += [{"type": "event", **event.to_dict()} for event in report.events]
        text = "".join(json.dumps(item, allow_nan=False) + "\n" for item in objects)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)


class TensorBoard(Writer):
    """Writer of TensorBoard scalars, a histogram of the shift over dimensions, and a text for each alarm.

    Needs ``pip install 'regtta[monitor]'``. TensorBoard includes the host name in the names of its files.

    Args:
        folder: log directory of TensorBoard.
    """

    def __init__(self, folder: str | Path) -> None:
        import_optional("tensorboard", "monitor", "The TensorBoard writer")
        module = import_optional("torch.utils.tensorboard", "monitor", "The TensorBoard writer")
        self._writer = module.SummaryWriter(str(folder))

    def write(self, report: MonitorReport) -> None:
        """Add the signals and events of one batch."""
        step = report.signals.index
        for name, value in report.signals.scalars().items():
            self._writer.add_scalar(f"regtta/{name}", value, step)
        for name, values in report.signals.series().items():
            if name.endswith("by_dimension"):
                self._writer.add_histogram(f"regtta/{name}", np.asarray(values), step)
        for event in report.events:
            self._writer.add_text(f"regtta/{event.alarm}", f"{event.kind}: {event.message}. {event.action}", step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


_HELP = {
    "samples": "Samples in the last batch",
    "learned": "Whether the last batch was learned from",
    "loss": "Loss of the last batch",
    "displacement": "Relative distance of the parameters from where the stream began",
    "count": "Samples of equal weight behind the signals",
    "batches_since_helped": "Batches since adapting last brought the features nearer to the source",
    "risk": "Estimated probability of being worse than the source model",
    "shift_source": "Shift of the source model features, root mean square in source standard deviations",
    "shift_adapted": "Shift of the adapted model features, root mean square in source standard deviations",
    "beyond_chance": "Shift over what chance explains",
    "reweighting": "Least chi-square divergence of a change of the label mix that explains the shift",
    "steadiness": "Movement of outputs between blocks over what chance explains",
    "alignment_gain": "Misalignment of the source model less that of the adapted model",
    "disagreement": "Root mean square of adapted less source predictions, in source standard deviations",
    "shift_source_by_dimension": "Shift of the source model features by direction of the subspace",
    "shift_adapted_by_dimension": "Shift of the adapted model features by direction of the subspace",
    "output_mean_source": "Mean output of the source model of late, in source standard deviations",
    "output_mean_adapted": "Mean prediction of late, in source standard deviations",
    "output_deviation_source": "Standard deviation of the source model outputs of late over the source",
    "output_deviation_adapted": "Standard deviation of predictions of late over the source",
}


class PrometheusText(Writer):
    """Writer of the latest signals in the Prometheus text format; the file is replaced atomically.

    Args:
        path: path of the file, ending in ``.prom`` for node-exporter.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = check_not_existing(path, overwrite=True)
        self._raised: Counter[str] = Counter()

    def write(self, report: MonitorReport) -> None:
        """Replace the file with the signals and alarms of one batch."""
        self._raised.update(event.alarm for event in report.events if event.kind == "raised")
        text = "".join([*_of_signals(report.signals), *self._of_alarms(report.active)])
        with atomic_write(self._path) as draft:
            draft.write_text(text, encoding="utf-8")

    def _of_alarms(self, active: dict[str, bool]) -> Iterable[str]:
        now = [(f'{{alarm="{name}"}}', float(on)) for name, on in active.items()]
        yield _family("alarm_active", "gauge", "Whether the alarm is raised", now)
        raised = [(f'{{alarm="{name}"}}', float(self._raised[name])) for name in active]
        yield _family(
            "alarms_raised_total", "counter", "How often the alarm was raised since this process began", raised
        )


def _of_signals(signals: Signals) -> Iterable[str]:
    yield _family("batches_total", "counter", "Batches of the stream so far", [("", float(signals.index + 1))])
    for name, value in signals.scalars().items():
        yield _family(name, "gauge", _HELP[name], [("", value)])
    for name, values in signals.series().items():
        label = "dimension" if name.endswith("by_dimension") else "output"
        points = [(f'{{{label}="{number}"}}', value) for number, value in enumerate(values)]
        yield _family(name, "gauge", _HELP[name], points)


def _family(name: str, kind: str, text: str, points: list[tuple[str, float]]) -> str:
    """Return one metric with its HELP and TYPE lines; empty if it has no points."""
    if not points:
        return ""
    lines = [f"# HELP regtta_{name} {text}.", f"# TYPE regtta_{name} {kind}"]
    lines += [f"regtta_{name}{labels} {_number(value)}" for labels, value in points]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Return a float in the Prometheus text format, with NaN, +Inf and -Inf."""
    if math.isnan(value):
        return "NaN"
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))
