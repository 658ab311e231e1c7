"""The paper's two protocols on one stream, and when a run counts as diverged.

Offline: one epoch of ``adapt``, then ``predict`` over the same set in eval mode. Online: the predictions of that epoch,
each made by the forward pass whose loss then updates the model.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.experiments.datasets import Domain
from regtta.metrics import RegressionMetrics, Scores
from regtta.steps import Step

PROTOCOLS = ("offline", "online")
_PREDICT_BATCH = 256


@dataclass(frozen=True)
class Outcome:
    """What came of one method on one stream.

    Attributes:
        scores: by protocol.
        learned: how many batches were learned from.
        refused: how many were not, by reason.
        diverged: what was not finite, or that no step could be taken; empty for a run that went well.
    """

    scores: Mapping[str, Scores]
    learned: int
    refused: Mapping[str, int]
    diverged: str = ""


def evaluate(adapter: Adapter, target: Domain, *, batch_size: int) -> Outcome:
    """Adapt over ``target`` once in its order, then predict on it, and score both.

    Labels reach the adapter only if its method says that it learns from them.
    """
    supervised = adapter.method.takes_targets
    steps = []
    for rows in torch.split(torch.arange(len(target)), batch_size):
        batch = target.take(rows)
        steps.append(adapter.adapt(batch.inputs, batch.targets if supervised else None))
    rest = (target.take(rows).inputs for rows in torch.split(torch.arange(len(target)), _PREDICT_BATCH))
    predictions = {
        "offline": torch.cat([adapter.predict(inputs) for inputs in rest]),
        "online": torch.cat([step.predictions for step in steps]),
    }
    verdicts = [step.diagnostics.verdict for step in steps]
    return Outcome(
        scores={protocol: score(predictions[protocol], target.targets) for protocol in PROTOCOLS},
        learned=sum(verdict.learned for verdict in verdicts),
        refused=dict(Counter(verdict.reason for verdict in verdicts if not verdict.learned)),
        diverged=what_diverged(steps, predictions, adapter),
    )


def score(predictions: Tensor, targets: Tensor) -> Scores:
    """All scores at once."""
    metrics = RegressionMetrics()
    metrics.update(predictions, targets)
    return metrics.compute()


def what_diverged(steps: Sequence[Step], predictions: Mapping[str, Tensor], adapter: Adapter) -> str:
    """Names what is not finite among losses, weights and predictions; empty if all is.

    The adapter refuses a step whose loss is not finite. Such a run still counts as diverged: without the guard it would
    be lost. So does a run of a method with something to train in which no step could be taken.
    """
    losses = [step.diagnostics.loss for step in steps if step.diagnostics.loss is not None]
    stuck = not any(step.diagnostics.verdict.learned for step in steps)
    signs = {
        "loss": not all(math.isfinite(loss) for loss in losses),
        "weights": not _finite_weights(adapter.export()),
        "predictions": not all(bool(values.isfinite().all()) for values in predictions.values()),
        "every step refused": stuck and adapter.method.schedule.trainable is not None,
    }
    return ", ".join(name for name, seen in signs.items() if seen)


def _finite_weights(model: nn.Module) -> bool:
    return all(bool(value.isfinite().all()) for value in model.state_dict().values() if value.is_floating_point())
