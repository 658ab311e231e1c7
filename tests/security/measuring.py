"""Give every absurd file to its reader, one after another, and print as JSON what came of it and what it took.

Run on its own, so that nothing but the reader is measured: the peak of the memory in use is set back before each.
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
from security.making import write
from security.readers import READERS

ALLOWED = (
    8 * 2**30
)  # of addresses beyond those in use at the start: what asks for more than that has asked for too much


def status(field: str) -> int:
    """A field of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def causes(error: BaseException | None) -> list[str]:
    """The kinds of the errors behind one."""
    found = []
    while error is not None:
        found += [kind.__name__ for kind in type(error).__mro__]
        error = error.__cause__ or error.__context__
    return found


def outcome(attack: Attack, folder: Path) -> dict[str, object]:
    reader = READERS[attack.reader]
    path = folder / reader.file
    write(path, attack.make())
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    try:
        reader.read(path)
    except BaseException as error:
        came = {"clear": isinstance(error, RegttaError), "message": str(error), "causes": causes(error)}
    else:
        came = {"clear": False, "message": "it was read", "causes": []}
    path.unlink()
    return {**came, "grown": status("VmHWM") - before}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    where = Path(sys.argv[1])
    os.chdir(where)
    for known in READERS.values():  # so that what is imported late is there before anything is measured
        write(where / known.file, known.whole())
        if known.kind != "mat":
            known.read(where / known.file)
    limit = status("VmSize") + ALLOWED
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    results = {attack.called: outcome(attack, where) for attack in ATTACKS if attack.absurd}
    sys.stdout.write(json.dumps(results))
