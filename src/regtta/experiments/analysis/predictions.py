"""Predictions paired with their labels, and the scores over them."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.errors import BatchError
from regtta.experiments.analysis.reports import Array, Report, array
from regtta.features import model_device, run_model
from regtta.metrics import RegressionMetrics, Scores
from regtta.parameters import private_copy


@dataclass(frozen=True, eq=False)
class PredictionReport(Report):
    """Predictions with their labels and scores.

    Attributes:
        predictions: predictions, (N, O).
        labels: labels, (N, O).
        scores: scores over all samples.
    """

    predictions: Array
    labels: Array
    scores: Scores


def prediction_report(predictions: Tensor, labels: Tensor) -> PredictionReport:
    """Score ``predictions`` against ``labels``, both (N,), (N, 1) or (N, O).

    Example:
        >>> report = prediction_report(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]))
        >>> report.predictions.shape, report.scores.r2
        ((3, 1), 0.5)
    """
    metrics = RegressionMetrics()
    metrics.update(predictions, labels)
    rows = len(predictions)
    return PredictionReport(
        array(predictions.reshape(rows, -1)), array(labels.reshape(rows, -1)), scores=metrics.compute()
    )


@torch.no_grad()
def predictions_over(model: nn.Module | Adapter, loader: Iterable[tuple[Tensor, Tensor]]) -> PredictionReport:
    """Predict over a loader of pairs ``(x, y)`` in eval mode, on a copy of the model, and score the predictions.

    Args:
        model: a model, or an adapter in its current state, which gives the paper's offline score.
        loader: batches ``(x, y)``.

    Example:
        >>> x = torch.randn(20, 3)
        >>> model = nn.Linear(3, 1)
        >>> predictions_over(model, zip(x.split(5), model(x).split(5))).scores.mae < 1e-6
        True
    """
    copied = model.export() if isinstance(model, Adapter) else private_copy(model).eval()
    device = model_device(copied)
    pairs = []
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise BatchError(f"Expected batches (x, y), inputs and labels, found {type(batch).__name__}.")
        x, y = batch
        pairs.append((run_model(copied, x.to(device)).cpu(), y.cpu()))
    if not pairs:
        raise BatchError("The loader gave no samples. Pass one that yields batches; an exhausted iterator is empty.")
    predictions, labels = zip(*pairs, strict=True)
    return prediction_report(torch.cat(predictions), torch.cat(labels))
