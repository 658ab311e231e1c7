"""Temporary replacement of a module's ``forward``."""

from collections.abc import Callable
from typing import Any

from torch import nn


def override_forward(module: nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Override the module's ``forward`` and return a function that removes the override.

    Hooks of the module are still called, and removal restores an earlier override.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 1)
        >>> end = override_forward(layer, lambda x: x + 1)
        >>> layer(torch.zeros(1))
        tensor([1.])
        >>> end()
        >>> "forward" in vars(layer)
        False
    """
    own = vars(module).get("forward")
    vars(module)["forward"] = forward

    def end() -> None:
        del vars(module)["forward"]
        if own is not None:
            vars(module)["forward"] = own

    return end
