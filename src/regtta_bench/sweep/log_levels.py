"""Context managers that quiet loggers while runs are made."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

_RECURRING = ("regtta.methods", "regtta.statistics.source", "regtta_bench.training.models")


@contextmanager
def quiet_loggers(*names: str) -> Iterator[None]:
    """Raise the level of the named loggers to ERROR within the block, and restore it afterwards.

    Example:
        >>> with quiet_loggers("regtta.statistics.source"):
        ...     logging.getLogger("regtta.statistics.source").isEnabledFor(logging.WARNING)
        False
    """
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def suppress_recurring_warnings() -> AbstractContextManager[None]:
    """Suppress warnings that recur in every run (the oracle sees labels, k is clipped); the tables state them once."""
    return quiet_loggers(*_RECURRING)
