"""Independent random generators by seed and purpose."""

import hashlib

import torch


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return the generator of ``seed`` and ``purpose``; the streams of different purposes are independent.

    Example:
        >>> torch.rand(1, generator=generator(0, "noise")) == torch.rand(1, generator=generator(0, "noise"))
        tensor([True])
    """
    return torch.Generator().manual_seed(number_of(seed, purpose))


def number_of(seed: int, purpose: str) -> int:
    """Return a 63-bit seed for one purpose, hashed so that neighbouring seeds and purposes are unrelated."""
    digest = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
