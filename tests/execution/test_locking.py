import copy
import pickle
import threading

import pytest
import torch

import regtta
from helpers import monitored_stream, small_models
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


# --- the owner, as long as nobody else uses the lock ---------------------------------------------


def owner_write(lock, inside):
    """Write as the owner does; ``inside`` is called meanwhile."""
    with lock.unshared:
        assert lock.owner == threading.get_ident()
        inside()


def test_the_owner_is_the_thread_that_created_the_lock_until_another_uses_it():
    lock = SharedLock()
    for door in (lock.reading, lock.writing):
        with door():
            assert lock.owner == threading.get_ident()  # its own use ends nothing

    def read():
        with lock.reading():
            pass

    join(start(read))
    assert lock.owner is None


@pytest.mark.parametrize("door", ["reading", "writing"])
def test_the_first_use_by_another_thread_waits_for_the_owners_write(door):
    lock, order, threads = SharedLock(), [], []
    asked = threading.Event()

    def use():
        asked.set()
        with getattr(lock, door)():
            order.append((door, lock.owner))

    def inside():
        threads.extend(start(use))
        assert asked.wait(PATIENCE)
        threads[0].join(0.2)  # time enough to get in
        assert lock.owner == threading.get_ident()
        order.append("written")

    owner_write(lock, inside)
    join(threads)
    assert order == ["written", (door, None)]


def test_an_adapter_is_read_by_another_thread_only_before_or_after_a_step_of_its_owner(monkeypatch):
    """The first prediction of a second thread falls into a step that the owner takes without the shared lock."""
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
            with torch.no_grad():  # not a state that anybody may see
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
    for x in batches[1:]:  # the owner goes on with the shared lock
        torch.testing.assert_close(adapter.adapt(x).predictions, expected.adapt(x).predictions)


def test_an_exception_in_a_step_of_the_owner_lets_go():
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
def test_a_copy_of_an_adapter_continues_by_itself_with_a_monitor_of_its_own(used_by_others):
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
    other.reset()  # a monitor refuses to start with another adapter


def test_a_copy_may_be_made_while_the_adapter_is_paused():
    adapter = monitored_stream.adapter()
    with adapter.paused():
        other = copy.deepcopy(adapter)
        join(start(lambda: other.adapt(monitored_stream.stream(1)[0])))
    assert repr(other).endswith("batches=1, adapted=1)")
    assert repr(adapter).endswith("batches=0, adapted=0)")
