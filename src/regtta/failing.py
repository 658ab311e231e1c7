"""What fails in one of several processes fails in all, so that none waits for one that has given up."""

from collections.abc import Iterator
from contextlib import contextmanager

from regtta.errors import PeerError, ProcessError, RegttaError
from regtta.processes import Processes


@contextmanager
def failing_together(processes: Processes) -> Iterator[None]:
    """A block that each process runs by itself, and that raises in all of them where it raises in one.

    The process whose block failed (the first of them, where several did) raises what its block did, the others a
    :class:`regtta.errors.PeerError` that says the same. They meet at the end of the block, which must not have
    exchanges of its own.

    Example:
        >>> from regtta.processes import ALONE
        >>> with failing_together(ALONE):
        ...     int("one")
        Traceback (most recent call last):
        ValueError: invalid literal for int() with base 10: 'one'
    """
    mine: Exception | None = None
    try:
        yield
    except Exception as error:  # whatever it is, the others must hear of it
        mine = error
    say = None if mine is None else f"process {processes.rank} failed: {_sentence(mine)}"
    try:
        told = processes.first(say)
    except ProcessError:
        if mine is None:
            raise
        told = say  # nobody is there to say anything else
    if mine is not None and told == say:
        raise mine
    if told is not None:
        raise PeerError(f"The processes work together, and {told}") from mine


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RegttaError) else f"{type(error).__name__}: {text}"
