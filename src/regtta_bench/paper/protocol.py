"""The paper's evaluation protocols, offline and online, with their scores."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.guards import NOT_FINITE
from regtta.metrics import RegressionMetrics
from regtta.options import check_choice
from regtta.types import Step
from regtta_bench.data import Domain

Task = Literal["regression", "classification"]
TASKS: tuple[Task, ...] = get_args(Task)

ScoreDict = dict[str, float | int | None]


def compute_scores(predictions: Tensor, targets: Tensor, task: Task = "regression") -> ScoreDict:
    """Compute all scores of ``task``; scores that are not finite are None.

    Args:
        predictions: ``(N, O)`` values, or ``(N, C)`` logits.
        targets: ``(N, O)`` values, or ``(N, 1)`` class indices.
        task: regression or classification.

    Example:
        >>> import torch
        >>> compute_scores(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([[0.0], [0.0]]), "classification")
        {'accuracy': 0.5, 'count': 2}
    """
    check_choice("the task", task, TASKS)
    if task == "regression":
        metrics = RegressionMetrics()
        metrics.update(predictions, targets)
        return metrics.compute().to_dict()
    if not bool(predictions.isfinite().all()):
        return {"accuracy": None, "count": len(targets)}
    right = predictions.argmax(dim=1).cpu() == targets.squeeze(1).long().cpu()
    return {"accuracy": float(right.double().mean()), "count": len(targets)}


def compute_output_scores(predictions: Tensor, targets: Tensor) -> list[ScoreDict]:
    """Compute the regression scores of each column of ``(N, O)`` predictions and targets."""
    columns = range(targets.shape[1])
    return [compute_scores(predictions[:, [column]], targets[:, [column]]) for column in columns]


PROTOCOLS = ("offline", "online")
NO_STEP_TAKEN = "every step refused"
_PREDICT_BATCH = 256


@dataclass(frozen=True)
class EvaluationResult:
    """Result of one method on one stream.

    Attributes:
        scores: scores by protocol.
        outputs: scores of each output by protocol, for a regressor with several outputs; else empty.
        learned: number of batches with a parameter update.
        refused: number of batches without one, by reason.
        diverged: sources of non-finite values, or that every step was rejected; empty for a run without divergence.
    """

    scores: Mapping[str, ScoreDict]
    outputs: Mapping[str, list[ScoreDict]]
    learned: int
    refused: Mapping[str, int]
    diverged: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
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
) -> EvaluationResult:
    """Adapt over ``target`` once in its order, then predict on it, and score both.

    Labels are passed to the adapter only if its method takes targets.

    Args:
        adapter: new adapter, without any steps taken.
        target: samples in the order of the stream.
        batch_size: samples per step.
        task: regression or classification; the labels of classification are class indices ``(N, 1)``.
        view: preprocessing from the inputs of the domain to those of the model.
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
    return EvaluationResult(
        scores={name: compute_scores(predictions[name], target.targets, task) for name in PROTOCOLS},
        outputs={name: compute_output_scores(predictions[name], target.targets) for name in PROTOCOLS if several},
        learned=sum(verdict.learned for verdict in verdicts),
        refused=dict(Counter(verdict.reason for verdict in verdicts if not verdict.learned)),
        diverged=divergence_reasons(steps, predictions, adapter),
    )


def _labels(targets: Tensor, task: Task) -> Tensor:
    return targets.squeeze(1).long() if task == "classification" else targets


def divergence_reasons(steps: Sequence[Step], predictions: Mapping[str, Tensor], adapter: Adapter) -> str:
    """Return the reasons for which a run counts as diverged, separated by commas; empty if there are none.

    A run diverged if losses, weights or predictions are not finite, or if a step was rejected because it was not
    finite: without the guard such a step would have destroyed the model. A run of a method with trainable parameters
    also diverged if every step was rejected.
    """
    stuck = not any(step.diagnostics.verdict.learned for step in steps)
    signs = [find_nonfinite(steps, predictions, adapter)]
    signs += [NO_STEP_TAKEN] if stuck and adapter.method.schedule.trainable is not None else []
    return ", ".join(filter(None, signs))


def find_nonfinite(steps: Sequence[Step], predictions: Mapping[str, Tensor], adapter: Adapter) -> str:
    """Return which of losses, steps, weights and predictions are not finite, separated by commas."""
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
