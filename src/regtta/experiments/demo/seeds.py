"""Randomness that belongs to one seed and one purpose, and to nothing else."""

import hashlib

import torch


def generator(seed: int, purpose: str) -> torch.Generator:
    """A generator of its own for each ``purpose``: using one does not move another.

    Example:
        >>> torch.rand(1, generator=generator(0, "noise")) == torch.rand(1, generator=generator(0, "noise"))
        tensor([True])
    """
    return torch.Generator().manual_seed(number_of(seed, purpose))


def number_of(seed: int, purpose: str) -> int:
    """A seed for one purpose, hashed so that neighbouring seeds and purposes share nothing."""
    digest = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
