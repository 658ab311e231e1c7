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

HELPERS = Path(__file__).parents[1] / "helpers"
STREAM = small_models.table(20 * 16, shift=1.0, scale=1.5, seed=2).split(16)


def adapter(method=None, model=None, **options):
    model = model or small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, method or regtta.SSA(k=4), source, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "stream.safetensors"


@pytest.fixture(scope="module")
def uninterrupted():
    return [step.predictions for step in adapter().run(STREAM)]


def test_the_documented_loop_resumes_exactly(path, uninterrupted):
    predicted = {}
    for stop in (0, 1, 7, 8, 20):  # each run stands for a process that ends there
        checkpoint = attach(regtta.Checkpoint(path, every=3), adapter())
        start = checkpoint.resume()
        for index, x in enumerate(islice(STREAM, start, stop), start):
            predicted.setdefault(index, []).append(checkpoint.adapter.adapt(x).predictions)
    assert sorted(predicted) == list(range(20))
    assert all(torch.equal(found, uninterrupted[index]) for index, all_ in predicted.items() for found in all_)


def test_the_file_counts_only_batches_whose_predictions_were_returned(path):
    checkpoint = attach(Checkpoint(path, every=2), adapter())
    done = []
    for x in STREAM[:7]:
        checkpoint.adapter.adapt(x)
        done.append(read_state(path)["batches"] if path.exists() else 0)
    assert done == [0, 0, 2, 2, 4, 4, 6]
    checkpoint.save()
    assert read_state(path)["batches"] == 7


def test_batches_are_counted_across_a_reset(path):
    checkpoint = attach(Checkpoint(path, every=2), adapter())
    for x in STREAM[:3]:
        checkpoint.adapter.adapt(x)
    checkpoint.adapter.reset()
    for x in STREAM[3:5]:
        checkpoint.adapter.adapt(x)
    again = attach(Checkpoint(path), adapter())
    assert again.resume() == 4
    assert (
        torch.equal(again.adapter.adapt(STREAM[4]).predictions, checkpoint.adapter.adapt(STREAM[4]).predictions)
        is False
    )
    assert again.batches == 5


def test_every_must_be_positive(path):
    with pytest.raises(OptionError, match="every"):
        attach(Checkpoint(path, every=0), adapter())


def test_callback_state_is_saved_at_the_same_batch(path):
    class Sum(regtta.Callback):
        state_key = "companion"
        total = 0.0

        def on_step(self, adapter, step):
            self.total += float(step.predictions.sum())

        def state_dict(self):
            return {"total": self.total}

        def load_state_dict(self, state):
            self.total = state["total"]

    first, reference = attach(Checkpoint(path, every=2), adapter(), Sum()), Sum()
    for number, x in enumerate(STREAM[:5]):
        step = first.adapter.adapt(x)
        if number < 4:
            reference.on_step(None, step)
    total = Sum()
    assert attach(Checkpoint(path), adapter(), total).resume() == 4
    assert total.total == reference.total


# --- files from which a stream must not resume ----------------------------------------------------


@pytest.fixture
def written(path):
    checkpoint = attach(Checkpoint(path), adapter())
    for x in STREAM[:4]:
        checkpoint.adapter.adapt(x)
    checkpoint.save()
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
def test_a_file_of_another_stream_is_rejected(written, other, words):
    with pytest.raises(MismatchError, match=words):
        attach(Checkpoint(written), other()).resume()


def test_a_damaged_file_is_rejected_and_not_overwritten(written):
    content = written.read_bytes()
    remedy = f"restore the file from a backup, or remove {written} to start a new stream"
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


@pytest.mark.parametrize("missing", ["batches", "adapter", "learner", "watches"])
def test_an_incomplete_state_leaves_the_adapter_unchanged(written, missing):
    state = read_state(written)
    (state if missing in state else state["adapter"]).pop(missing)
    write_state(written, state, overwrite=True)
    fresh, used = adapter(), adapter()
    with pytest.raises(InvalidFileError, match="holds no state of this stream.*remove"):
        attach(Checkpoint(written), used).resume()
    assert torch.equal(used.adapt(STREAM[0]).predictions, fresh.adapt(STREAM[0]).predictions)


def test_an_existing_file_is_not_overwritten_without_resume(written):
    before = written.read_bytes()
    unresumed = attach(Checkpoint(written, every=1), adapter())
    for act in (lambda: unresumed.adapter.adapt(STREAM[0]), unresumed.save):
        with pytest.raises(ExistingFileError, match=r"Call resume\(\) first"):
            act()
    assert written.read_bytes() == before
    overwriting = attach(Checkpoint(written, overwrite=True), adapter())
    overwriting.adapter.adapt(STREAM[0])
    overwriting.save()
    assert read_state(written)["batches"] == 1


def test_a_folder_in_place_of_the_file_is_rejected(tmp_path):
    with pytest.raises(FileError, match="is a folder. Name a file"):
        attach(Checkpoint(tmp_path), adapter()).resume()


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("unshare"), reason="needs mounts of its own")
def test_the_stream_survives_disk_faults(tmp_path):
    """Real disk faults (full, read-only, missing, blocked and limited) on a file system of 512 KiB."""
    namespace = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run(
        [*namespace, "mount", "-t", "tmpfs", "none", tmp_path], check=False, capture_output=True
    ).returncode:
        pytest.skip("this system lets no user mount")
    done = subprocess.run(
        [*namespace, sys.executable, HELPERS / "faulty_disk.py", tmp_path],
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
    found = {name.replace("disk read only", "disk read-only"): result for name, result in found["faults"].items()}
    assert found.keys() == words.keys() == set(faults.DISK_FAULTS) - {"file gone"}
    for name, result in found.items():
        assert result["failed"] == 2, name
        assert words[name] in result["error"], name
        assert words[name] in result["raised"], name
        assert result["kept"], name
        assert result["recovered"], name
        assert not result["left"], name
    assert done.stderr == ""  # the library logs and does not print


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(HELPERS.parents[1] / "src"), str(HELPERS.parent)])}


def test_a_deleted_file_is_written_again(path):
    checkpoint = attach(Checkpoint(path, every=2), adapter())
    for x in STREAM[:3]:
        checkpoint.adapter.adapt(x)
    path.unlink()
    for x in STREAM[3:5]:
        checkpoint.adapter.adapt(x)
    assert checkpoint.failures == 0
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
def test_each_write_error_is_logged_once_with_its_remedy(path, monkeypatch, caplog, code, remedy, uninterrupted):
    checkpoint = attach(Checkpoint(path, every=2), adapter())
    for index in range(3):
        checkpoint.adapter.adapt(STREAM[index])
    before = path.read_bytes()

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic_files.os, "fsync", fail)
    with caplog.at_level(logging.ERROR, "regtta"):
        for index in range(3, 9):
            assert torch.equal(checkpoint.adapter.adapt(STREAM[index]).predictions, uninterrupted[index])
    assert checkpoint.failures == 3
    assert len(caplog.records) == 1
    assert os.strerror(code) in checkpoint.last_error
    assert remedy in checkpoint.last_error
    assert "The stream continues" in caplog.text
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileError, match=remedy):
        checkpoint.save()
    monkeypatch.undo()
    assert checkpoint.try_save()
    assert checkpoint.last_error is None
    monkeypatch.setattr(atomic_files.os, "fsync", fail)
    assert not checkpoint.try_save()
    assert len(caplog.records) == 2  # a fault that recurs is logged again


def test_an_error_while_saving_does_not_affect_predictions(path, monkeypatch, caplog):
    checkpoint = attach(Checkpoint(path, every=1), adapter())

    def exhausted():
        raise RuntimeError("out of memory")

    monkeypatch.setattr(checkpoint.adapter, "state_dict", exhausted)
    checkpoint.adapter.adapt(STREAM[0])
    assert checkpoint.adapter.adapt(STREAM[1]).predictions.isfinite().all()
    assert checkpoint.failures == 1
    assert "RuntimeError: out of memory" in checkpoint.last_error


# --- kills and threads ----------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_stream_killed_at_random_times_gives_the_same_predictions(tmp_path):
    # SIGKILL loses no data already written to the page cache, so a faster in-memory file system is equivalent here.
    memory = Path("/dev/shm")
    folder = (memory if os.access(memory, os.W_OK) else tmp_path) / f"regtta-kills-{os.getpid()}"
    folder.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, HELPERS / "killed_stream.py", folder, str(faults.KILLS), "0"],
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
    assert found["given"] > found["batches"]  # some batches were repeated and compared again
    assert (found["lost"], found["different"]) == (0, 0)


def test_threads_that_share_a_checkpoint_count_every_batch(path, uninterrupted):
    checkpoint, predicted = attach(Checkpoint(path, every=3), adapter()), []

    def work(batches):
        predicted.extend(checkpoint.adapter.adapt(x).index for x in batches)

    threads = [threading.Thread(target=work, args=(STREAM[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(predicted) == list(range(20))
    assert checkpoint.batches == 20
    state = read_state(path)
    assert state["batches"] == state["adapter"]["index"] == 18


def test_the_state_of_a_monitor_is_saved_in_the_checkpoint(path):
    def make_monitored():
        monitored = adapter()
        monitor = attach(regtta.Monitor(), monitored)
        return monitor, attach(regtta.Checkpoint(path, every=3), monitored)

    reference, checkpoint = make_monitored()
    steps = [checkpoint.adapter.adapt(x) for x in STREAM]
    again, resumed = make_monitored()
    start = resumed.resume()
    assert start == 18
    for x, step in zip(STREAM[start:], steps[start:], strict=True):
        assert torch.equal(resumed.adapter.adapt(x).predictions, step.predictions)
    assert again.signals == reference.signals
    assert again.signals.evidence is not None
    assert again.raised == reference.raised
