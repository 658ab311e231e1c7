"""Faults to inject into a healthy stream: each corrupts a batch, or breaks the step that learns from it."""

from collections.abc import Callable

import torch
from torch import Tensor

INJECTED = 50
"""Number of each fault in one stream."""


def not_a_number(batch: Tensor) -> Tensor:
    return batch.masked_fill(torch.arange(batch.shape[1]) == 1, torch.nan)


def infinite(batch: Tensor) -> Tensor:
    return batch.masked_fill(torch.arange(batch.shape[1]) == 2, torch.inf)


def single(batch: Tensor) -> Tensor:
    return batch[:1]


def constant(batch: Tensor) -> Tensor:
    return batch[:1].expand_as(batch).clone()


def empty(batch: Tensor) -> Tensor:
    return batch[:0]


def overflowing(batch: Tensor) -> Tensor:
    """Scale the batch so that it is finite, but overflows after a layer or two."""
    return batch * 3e38


def with_samples(bad: float) -> Callable[[Tensor], Tensor]:
    """Return a function that appends two copies of the first sample with one number replaced by ``bad``."""

    def spoil(batch: Tensor) -> Tensor:
        more = batch[:1].repeat(2, 1)
        more[:, 1] = bad
        return torch.cat([batch, more])

    return spoil


SINGLE: dict[str, Callable[[Tensor], Tensor]] = {
    "a sample with a NaN": with_samples(torch.nan),
    "a sample with an infinity": with_samples(-torch.inf),
    "a sample with a sentinel of 65535": with_samples(65535.0),
    "a sample a million times too large": with_samples(1e6),
}
"""Each adds two bad samples to a batch: the others are learned from."""

SPOILING: dict[str, Callable[[Tensor], Tensor]] = {
    "a batch with nothing but NaN": not_a_number,
    "a batch with nothing but infinities": infinite,
    "a batch of one sample": single,
    "a batch of one sample many times": constant,
    "an empty batch": empty,
    "a batch that overflows in the model": overflowing,
}
BREAKING = (
    "an error in the model's forward pass",
    "a loss that is not a number",
    "a step that takes the weights too far",
    "a step that a guard of the user's vetoes",
)
