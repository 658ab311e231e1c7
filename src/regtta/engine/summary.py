"""Summary of an adapter as text, and the warnings that the library logs in a block of code."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regtta.engine.serving import ServedStream
from regtta.engine.stream import Stream

if TYPE_CHECKING:
    from regtta.adapter import Adapter

_REASONS_SHOWN = 5


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.messages:
            self.messages.append(message)


@contextmanager
def record_warnings() -> Iterator[list[str]]:
    """Collect the warnings that the library logs inside the block, beside their usual handling."""
    logger, handler = logging.getLogger("regtta"), _Collector()
    logger.addHandler(handler)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)


class _ThreadFilter(logging.Filter):
    """Filter that drops the warnings of the current thread and keeps their texts."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.messages: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.thread != self._thread:
            return True
        self.messages.append(record.getMessage())
        return False


@contextmanager
def capture_warnings() -> Iterator[list[str]]:
    """Collect the warnings that the library logs in this thread inside the block, instead of logging them.

    Example:
        >>> with capture_warnings() as messages:
        ...     logging.getLogger("regtta.statistics.source").warning("k=%d is too large", 9)
        >>> messages
        ['k=9 is too large']
    """
    names = [name for name in logging.root.manager.loggerDict if name.startswith("regtta.")]
    loggers, found = [logging.getLogger(name) for name in names], _ThreadFilter()
    for logger in loggers:
        logger.addFilter(found)
    try:
        yield found.messages
    finally:
        for logger in loggers:
            logger.removeFilter(found)


def summarize(adapter: "Adapter", stream: Stream | None, notes: tuple[str, ...]) -> str:
    """Return one line each for model, method, statistics, guards, stream, reasons of rejection and warnings."""
    model, source = adapter.model, adapter.source
    total = sum(parameter.numel() for parameter in model.parameters())
    lines = [("model", f"{type(model).__name__}, {total:,} parameters"), ("method", repr(adapter.method))]
    if stream is not None:
        moving = stream.learner.state.trainable
        count = sum(parameter.numel() for parameter in moving.values())
        lines.append(("adapted", f"{count:,} parameters in {len(moving)} tensors"))
        lines.append(("head", adapter.head or "none"))
    lines.append(("statistics", "none" if source is None else repr(source)))
    lines.append(("guards", ", ".join(type(guard).__name__ for guard in adapter.guards) or "none"))
    if stream is not None:
        lines.append(("stream", f"{stream.learned:,} of {stream.batches:,} batches learned from"))
        lines.append(("displacement", f"{stream.learner.displacement:.3g}"))
        lines += _describe_serving(stream)
        reasons = stream.reasons.most_common()
        lines += [("rejected", f"{count:,}: {reason}") for reason, count in reasons[:_REASONS_SHOWN]]
        if len(reasons) > _REASONS_SHOWN:
            lines.append(("rejected", f"{sum(count for _, count in reasons[_REASONS_SHOWN:]):,}: for other reasons"))
    if stream is not None and stream.unlearned:
        notes = (*notes, stream.unlearned)
    lines += [("warning", note) for note in notes]
    return "\n".join(f"{name:<13}{value}" for name, value in lines)


def _describe_serving(stream: Stream) -> list[tuple[str, str]]:
    """Return which predictions are handed out and what labels say about both models; nothing for the adapted model."""
    if not isinstance(stream, ServedStream):
        return []
    scores, mixed = stream.mixture.scores(), stream.serving.serve == "mixture"
    weights = (
        f"weights from {scores.labels:,} labels: source {scores.source_weight:.3f}, adapted {scores.adapted_weight:.3f}"
    )
    lines = [
        ("serves", f"the mixture of the source model and the adapted one; {weights}" if mixed else "the source model")
    ]
    if scores.labels:
        losses = (
            f"source {scores.source_loss:.4g}, adapted {scores.adapted_loss:.4g}, mixture {scores.mixture_loss:.4g}"
        )
        lines.append(("feedback", f"{scores.labels:,} labels; mean loss: {losses}"))
    if mixed:
        leading = "adapted" if scores.adapted_weight > scores.source_weight else "source"
        lines.append(("export", f"the leading member, the {leading} model"))
    return lines
