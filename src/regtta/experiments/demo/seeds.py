"""Randomness that belongs to one seed and one purpose, and to nothing else."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def generator(seed: int, purpose: str) -> torch.Generator:
    """A generator of its own for each ``purpose``: using one does not move another.

    Example:
        >>> torch.rand(1, generator=generator(0, "noise")) == torch.rand(1, generator=generator(0, "noise"))
        tensor([True])
    """
    return torch.Generator().manual_seed(_number(seed, purpose))


@contextmanager
def seeded_globally(seed: int, purpose: str) -> Iterator[None]:
    """Torch's global CPU generator seeded within, and put back as it was after.

    For what takes no generator, such as the first weights of a layer.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed every accelerator too, which nothing here would put back.
        torch.default_generator.manual_seed(_number(seed, purpose))
        yield


def _number(seed: int, purpose: str) -> int:
    # Hashed, so that neighbouring seeds and purposes share nothing.
    digest = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
