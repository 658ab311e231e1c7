"""Regressor of the demo: four convolutional blocks with BatchNorm, then a linear head."""

from collections import OrderedDict

from torch import nn

from regtta.experiments.demo.seeds import number_of
from regtta.experiments.training.seeding import seeded_globally

CHANNELS = (8, 16, 32, 128)


def digit_regressor(seed: int) -> nn.Sequential:
    """Return an untrained regressor from ``(B, 1, 32, 32)`` to ``(B, 1)``, with 128 features before its head.

    Example:
        >>> import torch
        >>> model = digit_regressor(seed=0)
        >>> model(torch.zeros(5, 1, 32, 32)).shape, model.head.in_features
        (torch.Size([5, 1]), 128)
    """
    with seeded_globally(number_of(seed, "weights")):
        blocks = [
            (f"block{index}", _block(narrow, wide))
            for index, (narrow, wide) in enumerate(zip((1, *CHANNELS), CHANNELS, strict=False), start=1)
        ]
        return nn.Sequential(
            OrderedDict(
                [
                    *blocks,
                    ("pool", nn.AdaptiveAvgPool2d(1)),
                    ("flatten", nn.Flatten()),
                    ("head", nn.Linear(CHANNELS[-1], 1)),
                ]
            )
        )


def _block(narrow: int, wide: int) -> nn.Sequential:
    """Return a block from ``(B, narrow, H, W)`` to ``(B, wide, H/2, W/2)``."""
    # No bias: BatchNorm would subtract it again.
    convolution = nn.Conv2d(narrow, wide, kernel_size=3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(wide), nn.ReLU(), nn.MaxPool2d(2))
