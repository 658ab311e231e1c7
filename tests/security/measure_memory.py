"""Pass every oversized file to its reader, and print outcomes and peaks of memory as JSON.

Run in a process of its own, so that only the reader is measured: the peak of memory is reset before each file.
"""

import json
import os
import resource
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from regtta.errors import RegttaError
from security.attacks import ATTACKS, Attack
from security.file_builders import write
from security.readers import READERS

MAX_ADDRESSES = 8 * 2**30  # beyond those in use at the start


def read_status(field: str) -> int:
    """Return a field of ``/proc/self/status`` in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def causes(error: BaseException | None) -> list[str]:
    """Return the names of the classes of an error and of its causes."""
    found = []
    while error is not None:
        found += [kind.__name__ for kind in type(error).__mro__]
        error = error.__cause__ or error.__context__
    return found


def run_attack(attack: Attack, folder: Path) -> dict[str, object]:
    """Read the attack's file; return the error and the growth of memory."""
    reader = READERS[attack.reader]
    path = folder / reader.file
    write(path, attack.make())
    Path("/proc/self/clear_refs").write_text("5")
    before = read_status("VmRSS")
    try:
        reader.read(path)
    except BaseException as error:
        outcome = {"clear": isinstance(error, RegttaError), "message": str(error), "causes": causes(error)}
    else:
        outcome = {"clear": False, "message": "it was read", "causes": []}
    path.unlink()
    return {**outcome, "growth": read_status("VmHWM") - before}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    os.chdir(folder)
    for reader in READERS.values():  # late imports happen before anything is measured
        write(folder / reader.file, reader.make_valid())
        if reader.kind != "mat":
            reader.read(folder / reader.file)
    limit = read_status("VmSize") + MAX_ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    results = {attack.title: run_attack(attack, folder) for attack in ATTACKS if attack.is_oversized}
    sys.stdout.write(json.dumps(results))
