"""Gathering source statistics in streaming passes over the source data."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from regtta.errors import StatisticsError
from regtta.features import FeatureModel, find_head, inputs_of, model_device
from regtta.moments import Moments
from regtta.parameters import private_copy
from regtta.statistics import SourceStatistics, fingerprint


def collect(
    model: nn.Module,
    loader: Iterable[object],
    *,
    head: str | None = None,
    inputs: str | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int], None] | None = None,
) -> SourceStatistics:
    """Statistics of the source features of ``model`` over ``loader``, in one streaming pass.

    Runs in eval mode, on a copy: the model given is left bit for bit as it was. Memory does not
    depend on the number of samples.

    Args:
        model: a trained model that ends in a linear head.
        loader: batches ``x``, ``(x, y)`` or dicts; targets are dropped.
        head: name of the head; ``None`` finds it by probing the first batch.
        inputs: the key of the input in dict batches.
        device: where to run; ``None`` stays on the model's device.
        progress: called after each batch with the number of samples seen so far.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        >>> source = regtta.collect(model, torch.randn(100, 3).split(10))
        >>> source.count, source.head, source.basis.shape
        (100, '2', torch.Size([8, 8]))
    """
    model = private_copy(model).eval()
    target = model_device(model) if device is None else torch.device(device)
    model.to(target)
    moments: Moments | None = None
    forward: FeatureModel | None = None
    with torch.no_grad():
        for index, batch in enumerate(loader):
            x = inputs_of(batch, inputs).to(target)
            if len(x) == 0:
                continue
            if forward is None:
                forward = FeatureModel(model, head or find_head(model, x))
            seen = Moments.of(_finite(forward(x).features, index))
            moments = seen if moments is None else moments.merge(seen)
            if progress is not None:
                progress(moments.count)
    if moments is None or forward is None:
        raise StatisticsError(
            "The source loader gave no samples. Give one that yields batches of inputs; an iterator "
            "that was used up before is empty."
        )
    return SourceStatistics.from_moments(moments, head=forward.head_name, fingerprint=fingerprint(model))


def _finite(features: Tensor, index: int) -> Tensor:
    if not bool(features.isfinite().all()):
        raise StatisticsError(
            f"The model gives non-finite features on source batch {index}. Source data must be clean: "
            "drop those samples, or check the model's weights."
        )
    return features
