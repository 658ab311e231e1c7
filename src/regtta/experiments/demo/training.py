"""Training of the demo's source model: squared error, AdamW, one cycle of the learning rate."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from regtta.experiments import training as loop
from regtta.experiments.datasets import Domain
from regtta.experiments.demo.model import digit_regressor
from regtta.experiments.demo.seeds import number_of


@dataclass(frozen=True)
class Training:
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

    def recipe(self) -> loop.Recipe:
        """Return the recipe of the training loop."""
        return loop.Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            optimizer="adamw",
            schedule="one_cycle",
        )


def train(
    source: Domain,
    seed: int,
    training: Training,
    *,
    advance: Callable[[], None] | None = None,
) -> nn.Module:
    """Return a regressor trained on ``source``, in eval mode.

    Args:
        source: training data, with targets ``(N,)``.
        seed: seed of the initial weights and of the sample order.
        training: hyperparameters.
        advance: callback after each epoch.
    """
    return loop.train(
        digit_regressor(seed),
        Domain(source.inputs, source.targets[:, None]),
        training.recipe(),
        seed=number_of(seed, "training order"),
        advance=None if advance is None else lambda *_: advance(),
    )
