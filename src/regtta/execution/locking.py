"""Readers–writer lock: concurrent predictions, exclusive updates."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SharedLock:
    """Readers–writer lock with first-in, first-out fairness.

    Readers and writers acquire the lock in order of arrival, so that neither starves the other. The lock is not
    reentrant: a thread that acquires it twice deadlocks.

    As long as only the thread that created the lock has used it, that thread may write while it holds ``unshared``
    alone, which costs no more than a mutex. The first use by another thread ends this, once ``unshared`` is free.

    Attributes:
        turn: reentrant lock for work that is done by one thread at a time, around the lock itself.
        unshared: mutex of the owner's writes.
        owner: identifier of the thread that created the lock; None as soon as another thread has used it.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.unshared = threading.Lock()
        self.owner: int | None = threading.get_ident()
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
        """Hold the lock for reading, shared with other readers."""
        self._share()
        with self._changed:
            self._wait_for_turn(lambda: not self._writing)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._notify_waiting()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock for writing, exclusively."""
        self._share()
        with self._changed:
            self._wait_for_turn(lambda: not self._writing and not self._readers)
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._notify_waiting()

    def _share(self) -> None:
        if self.owner is not None and self.owner != threading.get_ident():
            with self.unshared:
                self.owner = None

    def _notify_waiting(self) -> None:
        if self._queue:
            self._changed.notify_all()

    def _wait_for_turn(self, free: Callable[[], bool]) -> None:
        """Wait until all earlier threads have acquired the lock and ``free()`` is True."""
        if not self._queue and free():
            return
        ticket = object()
        self._queue.append(ticket)
        try:
            self._changed.wait_for(lambda: self._queue[0] is ticket and free())
        finally:  # also when the wait is interrupted
            self._queue.remove(ticket)
            self._changed.notify_all()
