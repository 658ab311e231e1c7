"""Training the source model: squared error, AdamW, one cycle of the learning rate."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn

from regtta.experiments.datasets import Domain
from regtta.experiments.demo.model import digit_regressor
from regtta.experiments.demo.seeds import generator


@dataclass(frozen=True)
class Training:
    """How a source model is trained.

    The schedule and its learning rate were chosen by the score on source digits held out from training,
    among one cycle and a plain cosine, with rates from 1e-3 to 1e-2.

    Args:
        epochs: passes over the source digits.
        batch_size: digits a step.
        lr: the learning rate at the peak of the cycle.
        weight_decay: AdamW's.
    """

    epochs: int = 30
    batch_size: int = 50
    lr: float = 1e-2
    weight_decay: float = 5e-4


def train(
    source: Domain,
    seed: int,
    training: Training,
    *,
    advance: Callable[[], None] | None = None,
) -> nn.Sequential:
    """A regressor trained on ``source``, in eval mode.

    Args:
        source: what to learn.
        seed: of its first weights and of the order of its batches.
        training: how.
        advance: called after each epoch.
    """
    model = digit_regressor(seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    steps = training.epochs * -(-len(source) // training.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=training.lr, total_steps=steps)
    order = generator(seed, "training order")
    for _ in range(training.epochs):
        for chosen in torch.split(torch.randperm(len(source), generator=order), training.batch_size):
            batch = source.take(chosen)
            loss = F.mse_loss(model(batch.inputs).squeeze(1), batch.targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        if advance is not None:
            advance()
    return model.eval()
