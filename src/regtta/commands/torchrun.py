"""What torchrun says about this process, read without loading torch, since the command line must answer at once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where a process stands among those that torchrun has started.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local_rank: its number among those on this machine.
    """

    rank: int
    size: int
    local_rank: int


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Where torchrun has put this process; ``None`` without torchrun, or where it started this one alone.

    Example:
        >>> place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
        Place(rank=1, size=2, local_rank=1)
        >>> place({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is place({})
        True
    """
    found = [environment.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    if not all(value.isdecimal() for value in found):
        return None
    rank, size, local_rank = map(int, found)
    return Place(rank, size, local_rank) if size > 1 else None


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process speaks and writes for all."""
    found = place(environment)
    return found is None or found.rank == 0
