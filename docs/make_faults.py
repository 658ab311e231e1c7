"""Writes faults.md from the numbers that the tests run with: ``make docs``."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_name("faults.md")
INTRODUCTION = """\
# Faults

Made by `make docs` from the numbers that the tests inject. Each row is a test, which fails if one of them is not
survived: where a stream was struck, its predictions and its state must be, bit for bit, those of a stream that was not;
where a file is hostile, it must end in a clear error, within bounded memory, and without running anything in it.

| fault | injected | survived | lost | test |
|---|---:|---:|---|---|
"""


def page() -> str:
    """Return the page with the constants of the tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers import faults
    from helpers import faulty_streams as streams
    from security.attacks import count_attacks
    from security.hostile_states import HOSTILE_FIELDS

    calls = faults.PREDICTING_THREADS * faults.PREDICTIONS_A_THREAD + faults.ADAPTING_THREADS * faults.UPDATES_A_THREAD
    rows: list[tuple[str, int, str, str]] = [
        *(
            (fault, streams.INJECTED, "nothing", "engine/test_faults.py")
            for fault in (*streams.SINGLE, *streams.SPOILING, *streams.BREAKING)
        ),
        (
            "killed with SIGKILL at a random moment, and resumed",
            faults.KILLS,
            "nothing",
            "persistence/test_checkpoint.py",
        ),
        *(
            (f"{fault}, while a checkpoint is written", 1, "nothing", "persistence/test_checkpoint.py")
            for fault in faults.DISK_FAULTS
        ),
        ("calls from several threads at once", calls, "nothing", "engine/test_concurrency.py"),
        *(
            (f"hostile file: {kind}", count, "nothing", "security/test_attacks.py")
            for kind, count in sorted(count_attacks().items())
        ),
        ("hostile field in a saved state", len(HOSTILE_FIELDS), "nothing", "security/test_hostile_states.py"),
    ]
    lines = [f"| {fault} | {count} | {count} | {lost} | `tests/{test}` |" for fault, count, lost, test in rows]
    return (
        INTRODUCTION
        + "\n".join(lines)
        + f"""

Kills fall where they fall; at least {faults.KILLED_WRITES} of them are made to fall into the writing of a checkpoint. Beside
the table, `tests/security` feeds every reader with random bytes and with mutations of valid files (hypothesis), and
`tests/fuzz` with inputs that look for new paths through the code (atheris, where it is installed). Saved states are
changed field by field as well, written with a right digest, resumed and stepped from: every change to every value of
several streams ends in a clear error that leaves the adapter as it was, or in finite predictions.

Not in the table, and not promised: that a prediction is good. [Guards](guards.md) and the [stress table](stress.md) are
about that.
"""
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
