"""Where signals and alarms are written to: JSON lines and TensorBoard. Prometheus has a module of its own."""

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
    """What a writer is given after a batch.

    Attributes:
        signals: of the batch.
        events: alarms that began or ended with it.
        active: every alarm by name, and whether it is raised.
    """

    signals: Signals
    events: Sequence[Event]
    active: dict[str, bool]


class Writer(ABC):
    """Writes news somewhere. Abstract. What it raises while writing the monitor logs, and the stream goes on."""

    @abstractmethod
    def write(self, news: News) -> None:
        """Write the news of one batch."""

    def close(self) -> None:  # noqa: B027 - nothing is a fine default
        """Let go of what is open; by default nothing is."""


class JsonLines(Writer):
    """Appends one JSON object for each batch, and one for each alarm that begins or ends.

    Each is a line with ``"type"`` (``"signals"`` or ``"event"``), written at once. The file is opened for each batch,
    so that it may be moved away at any time and another be begun.

    Args:
        path: the file; what is in it stays.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = refuse_existing(path, overwrite=True)
        try:
            self._path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise FileError(f"Could not write {path}: {error}.") from error

    def write(self, news: News) -> None:
        """Append the lines of one batch in one piece."""
        objects = [{"type": "signals", **news.signals.plain()}]
        objects += [{"type": "event", **event.plain()} for event in news.events]
        text = "".join(json.dumps(item, allow_nan=False) + "\n" for item in objects)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)


class TensorBoard(Writer):
    """Scalars for every number, a histogram of the shift over dimensions, and a text for each alarm.

    Needs ``pip install 'regtta[monitor]'``. The names of TensorBoard's own files hold the name of the machine.

    Args:
        folder: where TensorBoard looks.
    """

    def __init__(self, folder: str | Path) -> None:
        import_optional("tensorboard", "monitor", "The TensorBoard writer")
        module = import_optional("torch.utils.tensorboard", "monitor", "The TensorBoard writer")
        self._writer = module.SummaryWriter(str(folder))

    def write(self, news: News) -> None:
        """Add a point to every curve."""
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
