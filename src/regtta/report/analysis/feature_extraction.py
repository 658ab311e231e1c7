"""Extraction of a model's features over a loader, and validation and subsampling of feature matrices."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from regtta.errors import BatchError
from regtta.models import (
    BatchReader,
    FeatureModel,
    FeaturePooling,
    InputSelection,
    OutputSelection,
    model_device,
    private_copy,
)
from regtta.options import check_positive_int
from regtta.statistics import VALID_TOLERANCE, SourceStatistics


@torch.no_grad()
def compute_features(
    model: nn.Module,
    loader: Iterable[object],
    head: str,
    *,
    max_rows: int | None = None,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    features: FeaturePooling | None = None,
) -> Tensor:
    """Return the inputs of the head of ``model`` over ``loader``, (N, D) on the CPU, computed in eval mode.

    The forward passes run on a copy, so ``model`` is not modified. For the model of an adapter, pass
    ``adapter.export()``.

    Args:
        model: a model that ends in a linear head.
        loader: batches ``x``, ``(x, y)`` or dicts.
        head: name of the head, as in ``source.head``.
        max_rows: maximum number of rows. The first rows of the loader are taken; shuffle it if its order is not random.
        inputs: how a batch becomes the arguments of the model, as for :func:`regtta.collect`.
        output: prediction in what the model returns, as for :func:`regtta.collect`.
        features: function from the head's input to features, as for :func:`regtta.collect`.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> compute_features(model, torch.randn(100, 3).split(10), "2", max_rows=25).shape
        torch.Size([25, 8])
    """
    if max_rows is not None:
        check_positive_int("max_rows", max_rows)
    read = BatchReader(model, inputs)
    forward = FeatureModel(private_copy(model).eval(), head, output=output, pooling=features)
    device = model_device(forward.model)
    rows: list[Tensor] = []
    count = 0
    for batch in loader:
        rows.append(forward(read(batch).to(device)).flat_features.cpu())
        count += len(rows[-1])
        if max_rows is not None and count >= max_rows:
            break
    if count == 0:
        raise BatchError("The loader gave no samples. Pass one that yields batches; an exhausted iterator is empty.")
    return torch.cat(rows)[:max_rows]


def validate_features(source: SourceStatistics, features: Tensor) -> Tensor:
    """Validate that ``features`` is (N, D) with the width of the source; return it as float64 on the CPU."""
    if features.ndim != 2 or features.shape[1] != source.dimensions or len(features) == 0:
        raise BatchError(
            f"Expected features of shape (N, {source.dimensions}), one row per sample, found {tuple(features.shape)}. "
            f"Compute them with compute_features(model, loader, {source.head!r})."
        )
    return features.detach().cpu().double()


def validate_finite_features(source: SourceStatistics, features: Tensor, name: str = "the features") -> Tensor:
    """Validate ``features`` like :func:`validate_features`, and that there are at least two rows, all finite."""
    rows = validate_features(source, features)
    broken = int((~rows.isfinite().all(dim=1)).sum())
    if len(rows) < 2 or broken:
        raise BatchError(
            f"Expected two or more rows, all finite, in {name}, found {len(rows)} rows, {broken} of them not finite. "
            "Leave out the results of diverged runs."
        )
    return rows


def varying_columns(rows: Tensor) -> Tensor:
    """Return a mask (D,) of the columns of ``rows`` (N, D) that vary by more than rounding; all False for one row."""
    if len(rows) < 2 or rows.shape[1] == 0:
        return torch.zeros(rows.shape[1], dtype=torch.bool)
    return rows.std(dim=0) > VALID_TOLERANCE * rows.mean(dim=0).abs()


def subsample(rows: Tensor, max_rows: int, seed: int) -> Tensor:
    """Return ``max_rows`` rows drawn at random without replacement, or all rows in their order if there are no more.

    Matrices of the same length give the same rows for the same seed, so the results of several methods stay paired.

    Example:
        >>> len(subsample(torch.arange(10), 4, seed=0)), subsample(torch.arange(3), 4, seed=0)
        (4, tensor([0, 1, 2]))
    """
    check_positive_int("max_rows", max_rows)
    if len(rows) <= max_rows:
        return rows
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:max_rows]]
