"""Modules whose first weights come from a seed of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Torch's global CPU generator at ``seed`` within, and put back as it was after.

    For what takes no generator, such as the first weights of a layer.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed every accelerator too, which nothing here would put back.
        torch.default_generator.manual_seed(seed)
        yield


def seeded(make: Callable[[], M], seed: int) -> M:
    """What ``make`` gives with the global generator at ``seed``, which is put back after.

    Example:
        >>> bool((seeded(lambda: nn.Linear(2, 1), 0).weight == seeded(lambda: nn.Linear(2, 1), 0).weight).all())
        True
    """
    with seeded_globally(seed):
        return make()
