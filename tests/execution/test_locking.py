import copy
import pickle
import threading

import pytest

from regtta.execution.locking import SharedLock

PATIENCE = 30  # seconds after which a thread counts as stuck


def start(*works):
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def join(threads):
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "stuck"


def test_readers_share():
    lock, together = SharedLock(), threading.Barrier(3)

    def read():
        with lock.reading():
            together.wait(PATIENCE)  # passed only with all three inside

    join(start(read, read, read))
    assert not together.broken


def test_a_writer_is_alone():
    lock, inside, seen = SharedLock(), [], []

    def enter(name, door):
        for _ in range(200):
            with door():
                inside.append(name)
                seen.append(tuple(inside))
                inside.remove(name)

    doors = {"w1": lock.writing, "w2": lock.writing, "r1": lock.reading, "r2": lock.reading}
    join(start(*(lambda n=name, d=door: enter(n, d) for name, door in doors.items())))
    assert len(seen) == 800
    assert all(len(names) == 1 for names in seen if any(name.startswith("w") for name in names))


def queue_up(lock, *doors):
    """Threads that ask in this order while the lock is held; gives the order in which they get in."""
    order, threads = [], []

    def enter(number, door):
        with door():
            order.append(number)

    with lock.writing():
        for number, door in enumerate(doors):
            threads += start(lambda n=number, d=door: enter(n, d))
            while len(lock._queue) <= number:
                pass  # until it stands in line
    join(threads)
    return order


def test_all_are_let_in_by_the_order_in_which_they_came():
    lock = SharedLock()
    order = queue_up(lock, lock.writing, lock.reading, lock.writing, lock.reading, lock.writing)
    assert order == [0, 1, 2, 3, 4]


def test_a_reader_does_not_overtake_a_waiting_writer():
    lock, order = SharedLock(), []

    def write():
        with lock.writing():
            order.append("write")

    def read():
        with lock.reading():
            order.append("read")

    with lock.reading():
        threads = start(write)
        while not lock._queue:
            pass
        threads += start(read)
        while len(lock._queue) < 2:
            pass
        assert order == []
    join(threads)
    assert order == ["write", "read"]


@pytest.mark.parametrize(("many", "few"), [("writing", "reading"), ("reading", "writing")])
def test_nobody_starves(many, few):
    """Three threads that never pause, until the fourth, of the other kind, has had its turns."""
    lock, done = SharedLock(), threading.Event()

    def keep_on():
        while not done.is_set():
            with getattr(lock, many)():
                pass

    def take_turns():
        for _ in range(100):
            with getattr(lock, few)():
                pass
        done.set()

    threads = start(keep_on, keep_on, keep_on, take_turns)
    came = done.wait(PATIENCE)
    done.set()
    join(threads)
    assert came


@pytest.mark.parametrize("door", ["reading", "writing"])
def test_an_exception_inside_lets_go(door):
    lock = SharedLock()
    with pytest.raises(KeyError), getattr(lock, door)():
        raise KeyError
    with lock.writing():
        pass


def test_a_wait_that_is_interrupted_leaves_the_line(monkeypatch):
    lock = SharedLock()

    def interrupted(*_):
        raise KeyboardInterrupt

    with lock.reading():
        monkeypatch.setattr(lock._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), lock.writing():
            pass
        monkeypatch.undo()
        with lock.reading():  # nobody is in line before it
            pass
    with lock.writing():
        pass


def test_a_copy_is_free():
    lock = SharedLock()
    with lock.writing():
        for other in (copy.deepcopy(lock), pickle.loads(pickle.dumps(lock))):
            with other.writing():
                pass
