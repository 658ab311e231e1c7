"""Suppression of expected warnings in the log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hushed(*names: str) -> Iterator[None]:
    """Raise the level of the named loggers to ERROR within the block, and restore it afterwards.

    Example:
        >>> with hushed("regtta.statistics"):
        ...     logging.getLogger("regtta.statistics").isEnabledFor(logging.WARNING)
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
