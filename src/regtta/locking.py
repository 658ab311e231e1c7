"""Many readers or one writer: predictions side by side, updates alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """A lock that any number of readers share and that a writer has alone. Writers go first, so none starves.

    Not for holding twice: a thread that reads inside its own write would wait for itself.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False

    def __deepcopy__(self, memo: object) -> "SharedLock":
        return SharedLock()

    def __reduce__(self) -> tuple[type["SharedLock"], tuple[()]]:
        return SharedLock, ()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Shared with other readers."""
        with self._free:
            self._free.wait_for(lambda: not self._writing and not self._writers_waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._free:
                self._readers -= 1
                self._free.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone."""
        with self._free:
            self._writers_waiting += 1
            try:
                self._free.wait_for(lambda: not self._writing and not self._readers)
            finally:
                self._writers_waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._free:
                self._writing = False
                self._free.notify_all()
