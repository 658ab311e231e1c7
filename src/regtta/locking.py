"""Many readers or one writer: predictions side by side, updates alone."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SharedLock:
    """A lock that any number of readers share and that a writer has alone.

    All are let in by the order in which they came, so that constant updating starves no prediction, and constant
    predicting no update. Not for holding twice: a thread that reads inside its own write would wait for itself.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._readers = 0
        self._writing = False

    def __deepcopy__(self, memo: object) -> "SharedLock":
        return SharedLock()

    def __reduce__(self) -> tuple[type["SharedLock"], tuple[()]]:
        return SharedLock, ()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Shared with other readers."""
        with self._changed:
            self._wait_in_line(lambda: not self._writing)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._tell_the_waiting()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone."""
        with self._changed:
            self._wait_in_line(lambda: not self._writing and not self._readers)
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._tell_the_waiting()

    def _tell_the_waiting(self) -> None:
        if self._queue:
            self._changed.notify_all()

    def _wait_in_line(self, free: Callable[[], bool]) -> None:
        """Wait until all who came before are in, and ``free`` says yes."""
        if not self._queue and free():
            return
        ticket = object()
        self._queue.append(ticket)
        try:
            self._changed.wait_for(lambda: self._queue[0] is ticket and free())
        finally:  # a wait can be interrupted, too
            self._queue.remove(ticket)
            self._changed.notify_all()
