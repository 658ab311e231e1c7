"""Initialisation of modules from a seed, without side effects on global random state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator within the block, and restore its state afterwards.

    Use it for functions that accept no generator, such as the initialisation of a layer.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed every accelerator, whose state is not restored here.
        torch.default_generator.manual_seed(seed)
        yield


def seeded(make: Callable[[], M], seed: int) -> M:
    """Return ``make()``, called with the global generator seeded; its state is restored afterwards.

    Example:
        >>> bool((seeded(lambda: nn.Linear(2, 1), 0).weight == seeded(lambda: nn.Linear(2, 1), 0).weight).all())
        True
    """
    with seeded_globally(seed):
        return make()
