import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest
import torch

import regtta
from helpers import faults, small_models
from helpers.attaching import attach
from regtta.errors import (
    ExistingFileError,
    FileError,
    InvalidFileError,
    MismatchError,
    OptionError,
    TruncatedFileError,
    UnsafePickleError,
)
from regtta.persistence import atomic_files
from regtta.persistence.checkpoint import Checkpoint
from regtta.persistence.state_files import read_state, write_state

HERE = Path(__file__).parent
STREAM = small_models.table(20 * 16, shift=1.0, scale=1.5, seed=2).split(16)


def adapter(method=None, model=None, **options):
    model = model or small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, method or regtta.SSA(k=4), source, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "stream.safetensors"


@pytest.fixture(scope="module")
def never_stopped():
    return [step.predictions for step in adapter().run(STREAM)]


def test_the_loop_of_the_documentation(path, never_stopped):
    given = {}
    for stop in (0, 1, 7, 8, 20):  # each time another process, which ends there
        keeper = attach(regtta.Checkpoint(path, every=3), adapter())
        start = keeper.resume()
        for index, x in enumerate(islice(STREAM, start, stop), start):
            given.setdefault(index, []).append(keeper.adapter.adapt(x).predictions)
    assert sorted(given) == list(range(20))
    assert all(torch.equal(found, never_stopped[index]) for index, all_ in given.items() for found in all_)


def test_what_the_file_counts_as_done_has_been_handed_out(path):
    keeper = attach(Checkpoint(path, every=2), adapter())
    done = []
    for x in STREAM[:7]:
        keeper.adapter.adapt(x)
        done.append(read_state(path)["batches"] if path.exists() else 0)
    assert done == [0, 0, 2, 2, 4, 4, 6]
    keeper.save()
    assert read_state(path)["batches"] == 7


def test_batches_are_counted_through_a_reset(path):
    keeper = attach(Checkpoint(path, every=2), adapter())
    for x in STREAM[:3]:
        keeper.adapter.adapt(x)
    keeper.adapter.reset()
    for x in STREAM[3:5]:
        keeper.adapter.adapt(x)
    again = attach(Checkpoint(path), adapter())
    assert again.resume() == 4
    assert torch.equal(again.adapter.adapt(STREAM[4]).predictions, keeper.adapter.adapt(STREAM[4]).predictions) is False
    assert again.batches == 5


def test_every_must_be_a_count(path):
    with pytest.raises(OptionError, match="every"):
        attach(Checkpoint(path, every=0), adapter())


def test_a_companion_stands_at_the_same_batch(path):
    class Sum(regtta.Callback):
        state_key = "companion"
        total = 0.0

        def on_step(self, adapter, step):
            self.total += float(step.predictions.sum())

        def state_dict(self):
            return {"total": self.total}

        def load_state_dict(self, state):
            self.total = state["total"]

    first, whole = attach(Checkpoint(path, every=2), adapter(), Sum()), Sum()
    for number, x in enumerate(STREAM[:5]):
        step = first.adapter.adapt(x)
        if number < 4:
            whole.on_step(None, step)
    total = Sum()
    assert attach(Checkpoint(path), adapter(), total).resume() == 4
    assert total.total == whole.total


# --- files that a stream must not go on from ------------------------------------------------------


@pytest.fixture
def written(path):
    keeper = attach(Checkpoint(path), adapter())
    for x in STREAM[:4]:
        keeper.adapter.adapt(x)
    keeper.save()
    return path


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: adapter(lr=1e-2), "method of the state"),
        (lambda: adapter(regtta.BNAdapt()), "method of the state"),
        (lambda: adapter(model=small_models.mlp(seed=4)), "model of the state"),
        (lambda: adapter(guards=regtta.SAFE), "guards of the state"),
    ],
)
def test_a_file_of_another_stream(written, other, words):
    with pytest.raises(MismatchError, match=words):
        attach(Checkpoint(written), other()).resume()


def test_a_damaged_file_never_begins_anew(written):
    content = written.read_bytes()
    remedy = f"put back a copy, or remove {written} to begin anew"
    for damaged, kind in [
        (content[:-1], TruncatedFileError),
        (content[:100], TruncatedFileError),
        (b"", TruncatedFileError),
        (content[:-1] + bytes([content[-1] ^ 1]), InvalidFileError),
        (b"PK\x03\x04" + bytes(100), UnsafePickleError),
    ]:
        written.write_bytes(damaged)
        with pytest.raises(kind, match="stream.safetensors") as caught:
            attach(Checkpoint(written), adapter()).resume()
        assert remedy in str(caught.value)
        assert written.read_bytes() == damaged


@pytest.mark.parametrize("lacking", ["batches", "adapter", "learner", "watches"])
def test_a_state_that_lacks_a_part_leaves_the_adapter_as_new(written, lacking):
    state = read_state(written)
    (state if lacking in state else state["adapter"]).pop(lacking)
    write_state(written, state, overwrite=True)
    fresh, used = adapter(), adapter()
    with pytest.raises(InvalidFileError, match="holds no state of this stream.*remove"):
        attach(Checkpoint(written), used).resume()
    assert torch.equal(used.adapt(STREAM[0]).predictions, fresh.adapt(STREAM[0]).predictions)


def test_a_good_file_is_not_run_over_by_forgetting_to_resume(written):
    before = written.read_bytes()
    forgetful = attach(Checkpoint(written, every=1), adapter())
    for act in (lambda: forgetful.adapter.adapt(STREAM[0]), forgetful.save):
        with pytest.raises(ExistingFileError, match=r"Call resume\(\) first"):
            act()
    assert written.read_bytes() == before
    anew = attach(Checkpoint(written, overwrite=True), adapter())
    anew.adapter.adapt(STREAM[0])
    anew.save()
    assert read_state(written)["batches"] == 1


def test_a_folder_in_place_of_the_file(tmp_path):
    with pytest.raises(FileError, match="is a folder. Name a file"):
        attach(Checkpoint(tmp_path), adapter()).resume()


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("unshare"), reason="needs mounts of its own")
def test_the_stream_outlives_its_disk(tmp_path):
    """Full, read-only, gone, taken and limited disks, for real, on a file system of 512 KiB."""
    own = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*own, "mount", "-t", "tmpfs", "none", tmp_path], check=False, capture_output=True).returncode:
        pytest.skip("this system lets no user mount")
    done = subprocess.run(
        [*own, sys.executable, HERE / "faulty_disk.py", tmp_path],
        check=False, capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same"] == found["batches"] == 43
    words = {
        "disk full": "No space left on device. Free space there",
        "disk read-only": "Read-only file system. Make the disk writable again",
        "folder gone": "no folder",
        "path is a folder": "it is a folder. Name a file.",
        "file too large": "File too large. Raise the limit",
    }
    found = {name.replace("disk read only", "disk read-only"): told for name, told in found["faults"].items()}
    assert found.keys() == words.keys() == set(faults.DISK_FAULTS) - {"file gone"}
    for name, told in found.items():
        assert told["failed"] == 2, name
        assert words[name] in told["error"], name
        assert words[name] in told["raised"], name
        assert told["kept"], name
        assert told["recovered"], name
        assert not told["left"], name
    assert done.stderr == ""  # the library logs, and prints nothing


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])}


def test_a_file_that_is_gone_is_written_again(path):
    keeper = attach(Checkpoint(path, every=2), adapter())
    for x in STREAM[:3]:
        keeper.adapter.adapt(x)
    path.unlink()
    for x in STREAM[3:5]:
        keeper.adapter.adapt(x)
    assert keeper.failures == 0
    assert attach(Checkpoint(path), adapter()).resume() == 4


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free space there"),
        (errno.EDQUOT, "Free some of your quota"),
        (errno.EACCES, "Let this user write to the folder"),
        (errno.EIO, "Choose another path"),
    ],
)
def test_each_reason_is_logged_once_and_names_its_remedy(path, monkeypatch, caplog, code, remedy, never_stopped):
    keeper = attach(Checkpoint(path, every=2), adapter())
    for index in range(3):
        keeper.adapter.adapt(STREAM[index])
    before = path.read_bytes()

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic_files.os, "fsync", fail)
    with caplog.at_level(logging.ERROR, "regtta"):
        for index in range(3, 9):
            assert torch.equal(keeper.adapter.adapt(STREAM[index]).predictions, never_stopped[index])
    assert keeper.failures == 3
    assert len(caplog.records) == 1
    assert os.strerror(code) in keeper.last_error
    assert remedy in keeper.last_error
    assert "The stream goes on" in caplog.text
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileError, match=remedy):
        keeper.save()
    monkeypatch.undo()
    assert keeper.try_save()
    assert keeper.last_error is None
    monkeypatch.setattr(atomic_files.os, "fsync", fail)
    assert not keeper.try_save()
    assert len(caplog.records) == 2  # a fault that comes back is told again


def test_even_a_state_that_cannot_be_written_breaks_no_prediction(path, monkeypatch, caplog):
    keeper = attach(Checkpoint(path, every=1), adapter())

    def exhausted():
        raise RuntimeError("out of memory")

    monkeypatch.setattr(keeper.adapter, "state_dict", exhausted)
    keeper.adapter.adapt(STREAM[0])
    assert keeper.adapter.adapt(STREAM[1]).predictions.isfinite().all()
    assert keeper.failures == 1
    assert "RuntimeError: out of memory" in keeper.last_error


# --- kills and threads ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_stream_killed_at_random_moments_gives_the_same_predictions(tmp_path):
    # A kill loses nothing that was handed to the system, so that memory is as good a disk here, and quicker.
    memory = Path("/dev/shm")
    folder = (memory if os.access(memory, os.W_OK) else tmp_path) / f"regtta-kills-{os.getpid()}"
    folder.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, HERE / "killed_stream.py", folder, str(faults.KILLS), "0"],
            check=False, capture_output=True, text=True, env=environment(),
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == found["readable after"] == faults.KILLS
    assert found["in a write"] >= faults.KILLED_WRITES
    assert found["drafts at once"] == 1
    assert found["learned"] > 0.9 * found["batches"] > 20
    assert found["given"] > found["batches"]  # some were done twice, and compared twice
    assert (found["lost"], found["different"]) == (0, 0)


def test_threads_that_share_a_keeper_lose_no_count(path, never_stopped):
    keeper, given = attach(Checkpoint(path, every=3), adapter()), []

    def work(batches):
        given.extend(keeper.adapter.adapt(x).index for x in batches)

    threads = [threading.Thread(target=work, args=(STREAM[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(given) == list(range(20))
    assert keeper.batches == 20
    state = read_state(path)
    assert state["batches"] == state["adapter"]["index"] == 18


def test_a_monitor_stands_in_the_file_as_well(path):
    def begin():
        watched = adapter()
        monitor = attach(regtta.Monitor(), watched)
        return monitor, attach(regtta.Checkpoint(path, every=3), watched)

    whole, keeper = begin()
    steps = [keeper.adapter.adapt(x) for x in STREAM]
    again, resumed = begin()
    start = resumed.resume()
    assert start == 18
    for x, step in zip(STREAM[start:], steps[start:], strict=True):
        assert torch.equal(resumed.adapter.adapt(x).predictions, step.predictions)
    assert again.signals == whole.signals
    assert again.signals.evidence is not None
    assert again.raised == whole.raised
