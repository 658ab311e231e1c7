"""One stream, killed at random moments and resumed in forked processes; prints the outcome as JSON.

A script of its own, since forking is safe only where no other thread runs.

Usage: python killed_stream.py FOLDER KILLS SEED
"""

import gc
import json
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

import torch

import regtta
from helpers import small_models
from helpers.attaching import attach
from regtta import guards
from regtta.persistence.atomic_files import TEMPORARY_SUFFIX
from regtta.persistence.state_files import read_state

torch.set_num_threads(1)
SIZE = 16
EVERY = 2
RECORD = struct.Struct(f"<q{SIZE}f")  # the batch's index and its predictions
GUARDS = (*guards.DEFAULT, guards.SubspaceEnergy(), guards.OutputRange(), guards.HealthCheck())  # with memory
MAX_SECONDS = 0.04  # maximum life of an adapting process in seconds


class KilledStream:
    def __init__(self, folder):
        self.model = small_models.mlp()
        self.source = regtta.collect(self.model, small_models.table(400).split(50))
        self.checkpoint = folder / "stream.safetensors"
        self.given = folder / "given.bin"

    def batch(self, index):
        return small_models.table(SIZE, shift=1.0, scale=1.5, seed=index)

    def adapter(self):
        return regtta.Adapter(self.model, regtta.SSA(k=4, lr=1e-2), self.source, guards=GUARDS)

    def adapt(self, ready, until):
        """Resume, adapt and write each prediction, as a user's process does, up to batch ``until``."""
        keeper = attach(regtta.Checkpoint(self.checkpoint, every=EVERY), self.adapter())
        index = keeper.resume()
        out = os.open(self.given, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(ready, b"r")
        while until is None or index < until:
            predictions = keeper.adapter.adapt(self.batch(index)).predictions
            os.write(out, RECORD.pack(index, *predictions.flatten().tolist()))
            index += 1

    def fork(self, until=None):
        """Return the id of a new process, once it adapts."""
        come, ready = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.adapt(ready, until)
                code = 0
            finally:
                os._exit(code)
        os.close(ready)
        assert os.read(come, 1) == b"r", "a process could not resume"
        os.close(come)
        return child

    def predictions_given(self):
        content = self.given.read_bytes()
        whole = len(content) // RECORD.size * RECORD.size
        return [(index, bytes(struct.pack(f"<{SIZE}f", *values)))
                for index, *values in RECORD.iter_unpack(content[:whole])]  # fmt: skip

    def never_killed(self, batches):
        adapter = self.adapter()
        steps = [adapter.adapt(self.batch(index)) for index in range(batches)]
        learned = sum(step.diagnostics.verdict.learned for step in steps)
        return [struct.pack(f"<{SIZE}f", *step.predictions.flatten().tolist()) for step in steps], learned


def main(folder, kills, seed):
    stream, moments = KilledStream(folder), random.Random(seed)
    stream.never_killed(1)  # imports everything that torch imports with the first update, once for all processes
    gc.freeze()  # objects shared with the forked processes are not copied by a collection
    died = in_a_write = drafts_at_once = resumed = 0
    for _ in range(kills):
        child = stream.fork()
        time.sleep(moments.uniform(0, MAX_SECONDS))
        os.kill(child, signal.SIGKILL)
        died += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        drafts = sum(entry.name.endswith(TEMPORARY_SUFFIX) for entry in folder.iterdir())
        in_a_write += drafts > 0
        drafts_at_once = max(drafts_at_once, drafts)
        resumed += not stream.checkpoint.exists() or read_state(stream.checkpoint)["batches"] >= 0
    reached = 1 + max(index for index, _ in stream.predictions_given())
    assert os.waitpid(stream.fork(until=reached + 1), 0)[1] == 0, "the last process failed"
    given = stream.predictions_given()
    expected, learned = stream.never_killed(reached + 1)
    sys.stdout.write(
        json.dumps(
            {
                "kills": died,
                "in a write": in_a_write,
                "readable after": resumed,
                "drafts at once": drafts_at_once,
                "batches": len(expected),
                "learned": learned,
                "given": len(given),
                "lost": len(set(range(len(expected))) - {index for index, _ in given}),
                "different": sum(values != expected[index] for index, values in given),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
