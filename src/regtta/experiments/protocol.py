"""The paper's two protocols on one stream, and when a run counts as diverged.

Offline: one epoch of ``adapt``, then ``predict`` over the same set in eval mode. Online: the predictions of that epoch,
each made by the forward pass whose loss then updates the model.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.experiments.datasets import Domain
from regtta.experiments.scoring import PlainScores, Task, scores_of, scores_of_each_output
from regtta.guards.steps import NOT_FINITE
from regtta.steps import Step

PROTOCOLS = ("offline", "online")
_PREDICT_BATCH = 256


@dataclass(frozen=True)
class Outcome:
    """What came of one method on one stream.

    Attributes:
        scores: by protocol.
        outputs: by protocol, the scores of each output, where a regressor has several; else empty.
        learned: how many batches were learned from.
        refused: how many were not, by reason.
        diverged: what was not finite, or that no step could be taken; empty for a run that went well.
    """

    scores: Mapping[str, PlainScores]
    outputs: Mapping[str, list[PlainScores]]
    learned: int
    refused: Mapping[str, int]
    diverged: str = ""

    def plain(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "scores": dict(self.scores),
            "outputs": dict(self.outputs),
            "learned": self.learned,
            "refused": dict(self.refused),
            "diverged": self.diverged,
        }


def evaluate(
    adapter: Adapter,
    target: Domain,
    *,
    batch_size: int,
    task: Task = "regression",
    view: Callable[[Tensor], Tensor] | None = None,
) -> Outcome:
    """Adapt over ``target`` once in its order, then predict on it, and score both.

    Labels reach the adapter only if its method says that it learns from them.

    Args:
        adapter: newly made.
        target: in the order of the stream.
        batch_size: samples a step.
        task: what is predicted; the labels of classification are the numbers of classes (N, 1).
        view: from the inputs of the domain to those of the model.
    """
    view = view or (lambda inputs: inputs)
    steps = []
    for rows in torch.split(torch.arange(len(target)), batch_size):
        batch = target.take(rows)
        labels = _labels(batch.targets, task) if adapter.method.takes_targets else None
        steps.append(adapter.adapt(view(batch.inputs), labels))
    rest = (view(target.inputs[rows]) for rows in torch.split(torch.arange(len(target)), _PREDICT_BATCH))
    predictions = {
        "offline": torch.cat([adapter.predict(inputs) for inputs in rest]),
        "online": torch.cat([step.predictions for step in steps]),
    }
    verdicts = [step.diagnostics.verdict for step in steps]
    several = task == "regression" and target.targets.ndim > 1 and target.targets.shape[1] > 1
    return Outcome(
        scores={name: scores_of(predictions[name], target.targets, task) for name in PROTOCOLS},
        outputs={name: scores_of_each_output(predictions[name], target.targets) for name in PROTOCOLS if several},
        learned=sum(verdict.learned for verdict in verdicts),
        refused=dict(Counter(verdict.reason for verdict in verdicts if not verdict.learned)),
        diverged=what_diverged(steps, predictions, adapter),
    )


def _labels(targets: Tensor, task: Task) -> Tensor:
    return targets.squeeze(1).long() if task == "classification" else targets


def what_diverged(steps: Sequence[Step], predictions: Mapping[str, Tensor], adapter: Adapter) -> str:
    """Names what is not finite among losses, weights and predictions; empty if all is.

    The adapter refuses a step that is not finite. Such a run still counts as diverged: without the guard it would
    be lost. So does a run of a method with something to train in which no step could be taken.
    """
    stuck = not any(step.diagnostics.verdict.learned for step in steps)
    signs = [not_finite(steps, predictions, adapter)]
    signs += ["every step refused"] if stuck and adapter.method.schedule.trainable is not None else []
    return ", ".join(filter(None, signs))


def not_finite(steps: Sequence[Step], predictions: Mapping[str, Tensor], adapter: Adapter) -> str:
    """Names what is not finite among the losses of ``steps``, the adapter's weights and predictions."""
    losses = [step.diagnostics.loss for step in steps if step.diagnostics.loss is not None]
    signs = {
        "loss": not all(math.isfinite(loss) for loss in losses),
        "step": any(step.diagnostics.verdict.reason == NOT_FINITE for step in steps),
        "weights": not _finite_weights(adapter.export()),
        "predictions": not all(bool(values.isfinite().all()) for values in predictions.values()),
    }
    return ", ".join(name for name, seen in signs.items() if seen)


def _finite_weights(model: nn.Module) -> bool:
    return all(bool(value.isfinite().all()) for value in model.state_dict().values() if value.is_floating_point())
