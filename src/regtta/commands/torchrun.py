"""Rank of this process under torchrun, read without importing torch to keep the command line fast."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Position of a process among those that torchrun has started.

    Attributes:
        rank: rank, from 0.
        size: number of processes.
        local_rank: rank on this machine.
    """

    rank: int
    size: int
    local_rank: int


def place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return the position of this process; ``None`` without torchrun or with a single process.

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
    """Return True if this process prints and writes files."""
    found = place(environment)
    return found is None or found.rank == 0
