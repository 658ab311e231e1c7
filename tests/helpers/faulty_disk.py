"""Stream whose disk really fails, in a mount namespace of its own that ends with the process.

Usage: unshare --map-root-user --mount python faulty_disk.py FOLDER
Prints the outcome of each fault as JSON.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import torch

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta.errors import FileError
from regtta.persistence.state_files import read_state

torch.set_num_threads(1)


class Faults:
    """Faults of the disk: each method causes one and returns the function that repairs it."""

    def __init__(self, folder, path):
        self.folder, self.path = folder, path

    def disk_full(self):
        rest = self.folder / "rest"
        with rest.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        return rest.unlink

    def disk_read_only(self):
        self._remount("ro")
        return lambda: self._remount("rw")

    def folder_gone(self):
        away = self.folder / "away"
        self.path.parent.rename(away)
        return lambda: away.rename(self.path.parent)

    def path_is_a_folder(self):
        kept = self.path.with_name("kept")
        self.path.rename(kept)
        self.path.mkdir()

        def repair():
            self.path.rmdir()
            kept.rename(self.path)

        return repair

    def file_too_large(self):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def _remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.folder], check=True)


def main(folder):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", folder], check=True)
    path = folder / "streams" / "stream.safetensors"
    path.parent.mkdir()
    model = small_models.mlp()
    source = regtta.collect(model, small_models.table(400).split(50))
    stream = small_models.table(60 * 16, shift=1.0, scale=1.5, seed=2).split(16)
    whole = [step.predictions for step in regtta.Adapter(model, regtta.SSA(k=4), source).run(stream)]
    keeper = attach(regtta.Checkpoint(path, every=2), regtta.Adapter(model, regtta.SSA(k=4), source))
    faults, outcomes = Faults(folder, path), {}
    index = same = 0

    def run_batches(batches):
        nonlocal index, same
        for _ in range(batches):
            same += torch.equal(keeper.adapter.adapt(stream[index]).predictions, whole[index])
            index += 1

    run_batches(3)
    for name in ("disk_full", "disk_read_only", "folder_gone", "path_is_a_folder", "file_too_large"):
        good, failures = read_state(path)["batches"], keeper.failures
        repair = getattr(faults, name)()
        run_batches(4)
        error, failed = keeper.last_error, keeper.failures - failures
        try:
            keeper.save()
            raised = ""
        except FileError as caught:
            raised = str(caught)
        repair()
        left = [entry.name for entry in path.parent.iterdir() if entry != path]
        kept = read_state(path)["batches"] == good
        run_batches(4)
        outcomes[name.replace("_", " ")] = {
            "failed": failed, "error": error, "raised": raised, "kept": kept, "left": left,
            "recovered": keeper.last_error is None and read_state(path)["batches"] > good,
        }  # fmt: skip
    sys.stdout.write(json.dumps({"batches": index, "same": same, "faults": outcomes}))


if __name__ == "__main__":
    shutil.which("mount") or sys.exit("no mount here")
    os.umask(0o022)
    main(Path(sys.argv[1]))
