import copy
import pickle
import threading

import pytest
import torch

import regtta
from helpers import monitored_stream, small_models
from regtta.execution.locking import SharedLock

TIMEOUT = 30  # seconds after which a thread counts as stuck


def start(*functions):
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def join(threads):
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "stuck"


def test_readers_share_the_lock():
    lock, barrier = SharedLock(), threading.Barrier(3)

    def read():
        with lock.reading():
            barrier.wait(TIMEOUT)  # passes only if all three hold the lock

    join(start(read, read, read))
    assert not barrier.broken


def test_a_writer_is_exclusive():
    lock, inside, seen = SharedLock(), [], []

    def enter(name, mode):
        for _ in range(200):
            with mode():
                inside.append(name)
                seen.append(tuple(inside))
                inside.remove(name)

    modes = {"w1": lock.writing, "w2": lock.writing, "r1": lock.reading, "r2": lock.reading}
    join(start(*(lambda n=name, d=mode: enter(n, d) for name, mode in modes.items())))
    assert len(seen) == 800
    assert all(len(names) == 1 for names in seen if any(name.startswith("w") for name in names))


def acquisition_order(lock, *modes):
    """Queue threads in this order while the lock is held, and return the order in which they acquire it."""
    order, threads = [], []

    def enter(number, mode):
        with mode():
            order.append(number)

    with lock.writing():
        for number, mode in enumerate(modes):
            threads += start(lambda n=number, d=mode: enter(n, d))
            while len(lock._queue) <= number:
                pass  # until the thread is queued
    join(threads)
    return order


def test_threads_acquire_the_lock_in_the_order_of_their_requests():
    lock = SharedLock()
    order = acquisition_order(lock, lock.writing, lock.reading, lock.writing, lock.reading, lock.writing)
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
def test_neither_readers_nor_writers_starve(many, few):
    """Three threads acquire the lock in a loop until a fourth, of the other kind, has finished."""
    lock, done = SharedLock(), threading.Event()

    def acquire_in_a_loop():
        while not done.is_set():
            with getattr(lock, many)():
                pass

    def acquire_repeatedly():
        for _ in range(100):
            with getattr(lock, few)():
                pass
        done.set()

    threads = start(acquire_in_a_loop, acquire_in_a_loop, acquire_in_a_loop, acquire_repeatedly)
    finished = done.wait(TIMEOUT)
    done.set()
    join(threads)
    assert finished


@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_an_exception_releases_the_lock(mode):
    lock = SharedLock()
    with pytest.raises(KeyError), getattr(lock, mode)():
        raise KeyError
    with lock.writing():
        pass


def test_an_interrupted_wait_leaves_the_queue(monkeypatch):
    lock = SharedLock()

    def interrupted(*_):
        raise KeyboardInterrupt

    with lock.reading():
        monkeypatch.setattr(lock._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), lock.writing():
            pass
        monkeypatch.undo()
        with lock.reading():  # the queue is empty
            pass
    with lock.writing():
        pass


def test_a_copy_is_unlocked():
    lock = SharedLock()
    with lock.writing():
        for other in (copy.deepcopy(lock), pickle.loads(pickle.dumps(lock))):
            with other.writing():
                pass


# --- the owner, while no other thread uses the lock ----------------------------------------------


def owner_write(lock, inside):
    """Call ``inside`` during a write by the owner."""
    with lock.unshared:
        assert lock.owner == threading.get_ident()
        inside()


def test_the_owner_is_the_thread_that_created_the_lock_until_another_uses_it():
    lock = SharedLock()
    for mode in (lock.reading, lock.writing):
        with mode():
            assert lock.owner == threading.get_ident()  # its own use does not end ownership

    def read():
        with lock.reading():
            pass

    join(start(read))
    assert lock.owner is None


@pytest.mark.parametrize("mode", ["reading", "writing"])
def test_the_first_use_by_another_thread_waits_for_the_owners_write(mode):
    lock, order, threads = SharedLock(), [], []
    asked = threading.Event()

    def use():
        asked.set()
        with getattr(lock, mode)():
            order.append((mode, lock.owner))

    def inside():
        threads.extend(start(use))
        assert asked.wait(TIMEOUT)
        threads[0].join(0.2)  # long enough to acquire the lock
        assert lock.owner == threading.get_ident()
        order.append("written")

    owner_write(lock, inside)
    join(threads)
    assert order == ["written", (mode, None)]


def test_another_thread_reads_an_adapter_only_before_or_after_a_step_of_its_owner(monkeypatch):
    """The first prediction of a second thread arrives during a step of the owner without the shared lock."""
    model, batches = small_models.mlp(), small_models.table(64, shift=1.0, scale=1.5).split(16)
    adapter = regtta.Adapter(model, regtta.BNAdapt(), head="6")
    expected = regtta.Adapter(model, regtta.BNAdapt(), head="6")
    predicted, threads, step = [], [], adapter._session.stream.step

    def slow_step(*args, **options):
        result = step(*args, **options)
        if not threads:
            threads.extend(start(lambda: predicted.append(adapter.predict(batches[3]))))
            threads[0].join(0.2)
            assert not predicted
            with torch.no_grad():  # an intermediate state that must not be visible
                adapter.model[6].bias += 1
            threads[0].join(0.2)
            with torch.no_grad():
                adapter.model[6].bias -= 1
        return result

    monkeypatch.setattr(adapter._session.stream, "step", slow_step)
    assert adapter._lock.owner == threading.get_ident()
    adapter.adapt(batches[0])
    join(threads)
    expected.adapt(batches[0])
    torch.testing.assert_close(predicted[0], expected.predict(batches[3]))
    assert adapter._lock.owner is None
    for x in batches[1:]:  # the owner continues with the shared lock
        torch.testing.assert_close(adapter.adapt(x).predictions, expected.adapt(x).predictions)


def test_an_exception_in_a_step_of_the_owner_releases_the_lock():
    adapter = regtta.Adapter(small_models.mlp(), regtta.BNAdapt(), head="6")
    with pytest.raises(RuntimeError, match="shapes"):
        adapter.adapt(torch.zeros(4, 9))
    join(start(lambda: adapter.predict(torch.zeros(4, 5))))
    assert adapter._lock.owner is None
    assert adapter.adapt(small_models.table(4)).index == 0


def test_turns_are_reentrant_and_exclusive():
    lock, done = SharedLock(), threading.Event()

    def take_turn():
        with lock.turn:
            done.set()

    with lock.turn, lock.turn:
        threads = start(take_turn)
        assert not done.wait(0.1)
    join(threads)
    assert done.is_set()


@pytest.mark.parametrize("used_by_others", [False, True])
def test_a_copy_of_an_adapter_is_independent_and_has_its_own_monitor(used_by_others):
    monitor = regtta.Monitor()
    adapter = monitored_stream.adapter(callbacks=[monitor])
    batches = monitored_stream.stream(8, shift=1.0)
    list(adapter.run(batches[:4]))
    if used_by_others:
        join(start(lambda: adapter.predict(batches[0])))
    other = copy.deepcopy(adapter)
    (copied,) = other.callbacks
    assert copied is not monitor
    assert copied.adapter is other
    assert monitor.adapter is adapter
    assert other._lock is not adapter._lock
    assert other._lock.owner == threading.get_ident()
    before, signals = adapter.predict(batches[0]), monitor.signals
    steps = list(other.run(batches[4:]))
    assert torch.equal(adapter.predict(batches[0]), before)
    assert monitor.signals == signals
    assert copied.signals.index == 7
    for step, expected in zip(steps, adapter.run(batches[4:]), strict=True):
        assert torch.equal(step.predictions, expected.predictions)
    assert copied.signals == monitor.signals
    other.reset()  # a monitor cannot start with another adapter


def test_a_paused_adapter_can_be_copied():
    adapter = monitored_stream.adapter()
    with adapter.paused():
        other = copy.deepcopy(adapter)
        join(start(lambda: other.adapt(monitored_stream.stream(1)[0])))
    assert repr(other).endswith("batches=1, adapted=1)")
    assert repr(adapter).endswith("batches=0, adapted=0)")
