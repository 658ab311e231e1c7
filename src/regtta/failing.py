"""Propagation of errors between processes, so that no process waits for one that has failed."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta.errors import PeerError, ProcessError, RegttaError
from regtta.processes import Processes


@contextmanager
def failing_together(processes: Processes) -> Iterator[None]:
    """Run a block in every process and raise in all of them if it raises in any.

    The failed process with the lowest rank re-raises its own error; all others raise a
    :class:`regtta.errors.PeerError` with the same message. The processes synchronize at the end of the block, which
    must not contain collective operations itself.

    Example:
        >>> from regtta.processes import ALONE
        >>> with failing_together(ALONE):
        ...     int("one")
        Traceback (most recent call last):
        ValueError: invalid literal for int() with base 10: 'one'
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:  # any error must be reported to the other processes
        own = error
    report = None if own is None else f"process {processes.rank} failed: {_sentence(own)}"
    try:
        first = processes.first(report)
    except ProcessError:
        if own is None:
            raise
        first = report  # the other processes are unreachable: raise the error of this one
    if own is not None and first == report:
        raise own
    if first is not None:
        raise PeerError(f"The processes work together, and {first}") from own


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RegttaError) else f"{type(error).__name__}: {text}"
