"""The demo's regressor and its training."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from regtta_bench.data import Domain
from regtta_bench.demo.demo_data import derive_seed
from regtta_bench.training import Recipe, global_seed, train

CHANNELS = (8, 16, 32, 128)


def digit_regressor(seed: int) -> nn.Sequential:
    """Return an untrained regressor from ``(B, 1, 32, 32)`` to ``(B, 1)``, with 128 features before its head.

    Example:
        >>> import torch
        >>> model = digit_regressor(seed=0)
        >>> model(torch.zeros(5, 1, 32, 32)).shape, model.head.in_features
        (torch.Size([5, 1]), 128)
    """
    with global_seed(derive_seed(seed, "weights")):
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


@dataclass(frozen=True)
class DigitTraining:
    """Hyperparameters of a source model's training.

    The schedule and its learning rate were chosen by the score on source digits held out from training,
    among one cycle and a plain cosine, with rates from 1e-3 to 1e-2.

    Args:
        epochs: passes over the source digits; an incomplete last batch of an epoch is dropped.
        batch_size: digits per step.
        lr: learning rate at the peak of the cycle.
        weight_decay: weight decay of AdamW.
    """

    epochs: int = 30
    batch_size: int = 50
    lr: float = 1e-2
    weight_decay: float = 5e-4

    def recipe(self) -> Recipe:
        """Return the recipe of the training loop."""
        return Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            optimizer="adamw",
            schedule="one_cycle",
        )


def train_digit_regressor(
    source: Domain,
    seed: int,
    training: DigitTraining,
    *,
    on_epoch: Callable[[], None] | None = None,
) -> nn.Module:
    """Return a regressor trained on ``source``, in eval mode.

    Args:
        source: training data, with targets ``(N,)``.
        seed: seed of the initial weights and of the sample order.
        training: hyperparameters.
        on_epoch: callback after each epoch.
    """
    return train(
        digit_regressor(seed),
        Domain(source.inputs, source.targets[:, None]),
        training.recipe(),
        seed=derive_seed(seed, "training order"),
        on_epoch=None if on_epoch is None else lambda *_: on_epoch(),
    )
