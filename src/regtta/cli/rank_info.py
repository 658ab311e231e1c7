"""Rank of this process under torchrun, read from the environment without importing torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RankInfo:
    """Rank of a process among those that torchrun has started.

    Attributes:
        rank: rank, from 0.
        size: number of processes.
        local_rank: rank on this machine.
    """

    rank: int
    size: int
    local_rank: int


def get_rank_info(environment: Mapping[str, str] = os.environ) -> RankInfo | None:
    """Return the rank of this process; ``None`` without torchrun or with a single process.

    Example:
        >>> get_rank_info({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
        RankInfo(rank=1, size=2, local_rank=1)
        >>> get_rank_info({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is get_rank_info({})
        True
    """
    found = [environment.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    if not all(value.isdecimal() for value in found):
        return None
    rank, size, local_rank = map(int, found)
    return RankInfo(rank, size, local_rank) if size > 1 else None


def is_first_process(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if this process prints and writes files."""
    info = get_rank_info(environment)
    return info is None or info.rank == 0
