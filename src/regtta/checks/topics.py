"""Texts of the single checks: model, head, parameters, batch size and statistics."""

import math
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from regtta.checks.result import Level
from regtta.errors import HeadMismatchError
from regtta.methods import SSA, AlignmentMethod, Method, Sum
from regtta.models import BatchNormSwitch, Head, batch_norm_layers, trainable_parameters
from regtta.statistics import MIN_ROWS, SourceStatistics, describe_few_samples, describe_small_variation

_NAMED = 3
_POOLING = {
    "": "",
    "mean": ", averaged over positions",
    "first": ", at the first position",
    "last": ", at the last position",
    "matched": ", at the position whose output the model returns",
    "all": ", one row for every position",
    "custom": ", computed by the function features=",
}


def describe_model(model: nn.Module) -> str:
    """Return class and size of a model."""
    total = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__} with {total:,} parameters."


def describe_head(model: nn.Module, head: str, linear: nn.Linear) -> str:
    """Return layers, widths and pooling of the head.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        >>> describe_head(net, "1", net[1])
        'The head is 1 (Linear): 3 features, 1 output.'
    """
    found = Head(model, head)
    kinds = ", ".join(dict.fromkeys(type(layer).__name__ for layer in found.modules.values()))
    outputs = f"{linear.out_features} output{'' if linear.out_features == 1 else 's'}"
    return f"The head is {head} ({kinds}): {linear.in_features:,} features{_POOLING[found.layout.pooling]}, {outputs}."


def moving_tensors(model: nn.Module, head: str | None, method: Method) -> dict[str, Tensor]:
    """Return the parameters and running statistics that a method changes, by name."""
    schedule, found = method.schedule, None if head is None else Head(model, head)
    if not method.adapts:
        return {}
    moving: dict[str, Tensor] = dict(
        trainable_parameters(model, None if found is None else found.module, schedule.trainable)
    )
    if method.replaces_head and found is not None:
        layers = {id(layer): name for name, layer in found.modules.items()}
        for place, layer in model.named_modules():
            if id(layer) in layers:
                moving |= {f"{place}.{name}".lstrip("."): value for name, value in layer.named_parameters()}
    if schedule.batch_norm != "source":
        running = {id(value) for layer in batch_norm_layers(model) for value in (layer.running_mean, layer.running_var)}
        moving |= {name: value for name, value in model.named_buffers() if id(value) in running}
    return moving


def describe_moving(model: nn.Module, method: Method, moving: dict[str, Tensor]) -> Iterator[tuple[Level, str]]:
    """Yield what adaptation changes, and what it cannot change."""
    if not method.adapts:
        yield "ok", f"{method.name} changes nothing."
        return
    values = sum(tensor.numel() for tensor in moving.values())
    yield "ok", f"{values:,} values in {len(moving):,} tensors are adapted: {_shorten(list(moving))}."
    layers = batch_norm_layers(model)
    untracked = [layer for layer in layers if layer.running_mean is None]
    if untracked:
        yield (
            "warning",
            f"{len(untracked)} of {len(layers)} BatchNorm layers have no running statistics, because of "
            "track_running_stats=False: predictions depend on the other samples of their batch, and batch_norm= has no "
            "effect on these layers.",
        )


def describe_batch_size(
    model: nn.Module, method: Method, size: int, source: SourceStatistics | None, width: int | None
) -> tuple[Level, str]:
    """Return whether a batch of ``size`` samples suits the method.

    Moments of fewer than 16 samples, or of fewer than half as many as the directions that are aligned, are a warning:
    a variance of n samples has a relative standard error of ``√(2 / (n − 1))``, 37 % for 16. The paper aligns 100
    directions with batches of 64.
    """
    schedule = method.schedule
    by_batch = BatchNormSwitch(batch_norm_layers(model), schedule.batch_norm, schedule.prior).needs_batches
    smallest = 1 if method.supports_single_samples and not by_batch else 2
    advice = _advice(method, by_batch=by_batch)
    if size < smallest:
        return "error", f"{method.name} cannot learn from a batch of {size}. {advice}"
    aligned = _aligned(method)
    window = min((term.window for term in aligned), default=0)
    samples = max(size, window)
    if (aligned and samples < MIN_ROWS) or (by_batch and size < MIN_ROWS):
        count = size if by_batch else samples
        error = math.sqrt(2 / (count - 1))
        return "warning", f"Variances of {count} samples have an error of {error:.0%}. {advice}"
    directions = max((count_directions(term, source, width) or 0 for term in aligned), default=0)
    if 2 * samples < directions:
        return "warning", f"{samples} samples are few for the alignment of {directions} directions. {advice}"
    return "ok", f"{size:,}, and {method.name} learns from batches of {smallest} or more."


def _advice(method: Method, *, by_batch: bool) -> str:
    options = [
        *(["window=64"] if _aligned(method) else []),
        *(['batch_norm="blended"'] if by_batch else []),
    ]
    return f"Pass larger batches{', or ' + ', '.join(options) if options else ''}."


def _aligned(method: Method) -> Sequence[AlignmentMethod]:
    terms = method.terms if isinstance(method, Sum) else (method,)
    return [term for term in terms if isinstance(term, AlignmentMethod)]


def count_directions(method: Method, source: SourceStatistics | None, width: int | None) -> int | None:
    """Return the number of principal directions that SSA aligns; ``None`` for other methods, or if unknown."""
    if not isinstance(method, SSA):
        return None
    most = source.rank if source is not None else width
    return most if method.k == "auto" or most is None else min(method.k, most)


def describe_source(source: SourceStatistics, method: Method, width: int | None) -> Iterator[tuple[Level, str]]:
    """Yield whether source statistics suit a method; raise a HeadMismatchError if their width differs."""
    if width is not None and width != source.dimensions:
        raise HeadMismatchError(
            f"The head takes {width} features, but the statistics have {source.dimensions}. Collect them with this "
            "model and head."
        )
    doubts = [describe_small_variation(source.mean, source.feature_variances), describe_few_samples(source)]
    for term in _aligned(method):
        directions = count_directions(term, source, width)
        doubts.append("" if directions is None else describe_few_samples(source, directions))
    found = [doubt for doubt in doubts if doubt]
    yield from (("warning", doubt) for doubt in found)
    if not found:
        yield "ok", f"Of this model and head: {source.count:,} samples, rank {source.rank:,} of {source.dimensions:,}."


def _shorten(names: Sequence[str]) -> str:
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])}, ..., {names[-1]}"
