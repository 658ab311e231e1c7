"""Scores of regression and classification as JSON values."""

from typing import Literal, get_args

from torch import Tensor

from regtta.metrics import RegressionMetrics
from regtta.options import check_choice

Task = Literal["regression", "classification"]
TASKS: tuple[Task, ...] = get_args(Task)

PlainScores = dict[str, float | int | None]


def scores_of(predictions: Tensor, targets: Tensor, task: Task = "regression") -> PlainScores:
    """Compute all scores of ``task``; scores that are not finite are None.

    Args:
        predictions: ``(N, O)`` values, or ``(N, C)`` logits.
        targets: ``(N, O)`` values, or ``(N, 1)`` class indices.
        task: regression or classification.

    Example:
        >>> import torch
        >>> scores_of(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([[0.0], [0.0]]), "classification")
        {'accuracy': 0.5, 'count': 2}
    """
    check_choice("the task", task, TASKS)
    if task == "regression":
        metrics = RegressionMetrics()
        metrics.update(predictions, targets)
        return metrics.compute().plain()
    if not bool(predictions.isfinite().all()):
        return {"accuracy": None, "count": len(targets)}
    right = predictions.argmax(dim=1).cpu() == targets.squeeze(1).long().cpu()
    return {"accuracy": float(right.double().mean()), "count": len(targets)}


def scores_of_each_output(predictions: Tensor, targets: Tensor) -> list[PlainScores]:
    """Compute the regression scores of each column of ``(N, O)`` predictions and targets."""
    columns = range(targets.shape[1])
    return [scores_of(predictions[:, [column]], targets[:, [column]]) for column in columns]
