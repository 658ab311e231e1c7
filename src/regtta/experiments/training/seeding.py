"""Modules whose first weights come from a seed of their own."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def seeded(make: Callable[[], M], seed: int) -> M:
    """What ``make`` gives with the global generator at ``seed``, which is put back after.

    Example:
        >>> bool((seeded(lambda: nn.Linear(2, 1), 0).weight == seeded(lambda: nn.Linear(2, 1), 0).weight).all())
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()
