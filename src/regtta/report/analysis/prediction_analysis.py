"""Analysis of predictions: errors against labels, and the distribution of outputs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from regtta.adapter import Adapter
from regtta.errors import BatchError, HeadMismatchError
from regtta.metrics import RegressionMetrics, Scores
from regtta.models import model_device, private_copy, run_model
from regtta.options import check_positive_int
from regtta.report.analysis.base import AnalysisResult, Array, to_numpy
from regtta.statistics import SourceStatistics


@dataclass(frozen=True, eq=False)
class OutputReport(AnalysisResult):
    """Histograms of predictions over shared bins, and the source's mean and standard deviation.

    Attributes:
        edges: bin edges of each output, (O, bins + 1).
        densities: densities by name of the predictions, each (O, bins).
        means: means by name, each (O,).
        sds: unbiased standard deviations by name, each (O,).
        counts: number of finite predictions by name.
        source_means: ``W μ + b``, (O,).
        source_sds: ``√(W Σ Wᵀ)_oo``, (O,).
    """

    edges: Array
    densities: Mapping[str, Array]
    means: Mapping[str, Array]
    sds: Mapping[str, Array]
    counts: Mapping[str, int]
    source_means: Array
    source_sds: Array


def output_report(
    source: SourceStatistics, head: nn.Linear, predictions: Mapping[str, Tensor], *, bins: int = 40
) -> OutputReport:
    """Compare predictions with the output distribution of the unadapted head on the source.

    Args:
        source: source statistics of the features.
        head: head of the unadapted model.
        predictions: predictions by name, each (N,), (N, 1) or (N, O); rows that are not finite are left out.
        bins: number of bins of each histogram.

    Example:
        >>> import regtta, torch
        >>> rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 1))
        >>> report = output_report(regtta.collect(model, [rows]), model[0], {"source": model(rows)})
        >>> bool(abs(report.means["source"] - report.source_means) < 1e-5)
        True
    """
    check_positive_int("bins", bins)
    weight = head.weight.detach().cpu().double()
    if weight.shape[1] != source.dimensions:
        raise HeadMismatchError(
            f"The head takes {weight.shape[1]} features, but the statistics are of {source.dimensions}. Pass the layer "
            f"{source.head!r}, at which they were collected."
        )
    bias = head.bias.detach().cpu().double() if head.bias is not None else weight.new_zeros(len(weight))
    if not predictions:
        raise BatchError("Expected at least one set of predictions, found none.")
    rows = {name: _finite_rows(values, len(weight), name) for name, values in predictions.items()}
    pooled = np.concatenate(list(rows.values()))
    edges = np.stack([np.histogram_bin_edges(column, bins=bins) for column in pooled.T])
    return OutputReport(
        edges=edges,
        densities={name: _densities(values, edges) for name, values in rows.items()},
        means={name: values.mean(axis=0) for name, values in rows.items()},
        sds={name: values.std(axis=0, ddof=1) for name, values in rows.items()},
        counts={name: len(values) for name, values in rows.items()},
        source_means=to_numpy(weight @ source.mean + bias),
        source_sds=to_numpy(((weight @ source.covariance()) * weight).sum(dim=1).clamp_min(0).sqrt()),
    )


def _finite_rows(values: Tensor, outputs: int, name: str) -> Array:
    table = to_numpy(values.reshape(len(values), -1))
    finite: Array = table[np.isfinite(table).all(axis=1)]
    if table.shape[1] != outputs or len(finite) < 2:
        raise BatchError(
            f"Expected two or more finite predictions of {outputs} outputs for {name!r}, found {len(finite)} of "
            f"{table.shape[1]}."
        )
    return finite


def _densities(values: Array, edges: Array) -> Array:
    return np.stack(
        [np.histogram(column, bins=ends, density=True)[0] for column, ends in zip(values.T, edges, strict=True)]
    )


@dataclass(frozen=True, eq=False)
class PredictionReport(AnalysisResult):
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
        to_numpy(predictions.reshape(rows, -1)), to_numpy(labels.reshape(rows, -1)), scores=metrics.compute()
    )


@torch.no_grad()
def predict_and_score(model: nn.Module | Adapter, loader: Iterable[tuple[Tensor, Tensor]]) -> PredictionReport:
    """Predict over a loader of pairs ``(x, y)`` in eval mode, on a copy of the model, and score the predictions.

    Args:
        model: a model, or an adapter in its current state, which gives the paper's offline score.
        loader: batches ``(x, y)``.

    Example:
        >>> x = torch.randn(20, 3)
        >>> model = nn.Linear(3, 1)
        >>> predict_and_score(model, zip(x.split(5), model(x).split(5))).scores.mae < 1e-6
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
