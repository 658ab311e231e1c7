"""Writers of signals and alarms: base class, JSON lines and TensorBoard."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regtta.errors import FileError
from regtta.files import refuse_existing
from regtta.monitor.events import Event
from regtta.monitor.signals import Signals
from regtta.optional_imports import import_optional


@dataclass(frozen=True)
class News:
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
    def write(self, news: News) -> None:
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
        self._path = refuse_existing(path, overwrite=True)
        try:
            self._path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise FileError(f"Could not write {path}: {error}.") from error

    def write(self, news: News) -> None:
        """Append the lines of one batch in a single write."""
        objects = [{"type": "signals", **news.signals.plain()}]
        objects += [{"type": "event", **event.plain()} for event in news.events]
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

    def write(self, news: News) -> None:
        """Add the signals and events of one batch."""
        step = news.signals.index
        for name, value in news.signals.numbers().items():
            self._writer.add_scalar(f"regtta/{name}", value, step)
        for name, values in news.signals.series().items():
            if name.endswith("by_dimension"):
                self._writer.add_histogram(f"regtta/{name}", np.asarray(values), step)
        for event in news.events:
            self._writer.add_text(f"regtta/{event.alarm}", f"{event.kind}: {event.message}. {event.action}", step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()
