"""Targets of the fuzzer by name: every reader, and the states of streams."""

from collections.abc import Sequence

from security.readers import READERS

STATES = "states"
TARGETS = (*READERS, STATES)


def parse_target(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the targets that ``--target`` names, and the arguments without it; exits where it names none."""
    place = arguments.index("--target") if "--target" in arguments[:-1] else -1
    name = arguments[place + 1] if place >= 0 else ""
    if name != "every" and name not in TARGETS:
        raise SystemExit(f"Name a target with --target, or every: {', '.join(TARGETS)}.")
    rest = [*arguments[:place], *arguments[place + 2 :]]
    return list(TARGETS) if name == "every" else [name], rest
