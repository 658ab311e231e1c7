"""The function :func:`regtta.check`: one check after the other, each of which adds its findings."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from regtta.checks.check_run import CheckRun
from regtta.checks.result import CheckResult
from regtta.engine import capture_warnings, check_head_name
from regtta.methods import Method
from regtta.models import FeaturePooling, InputSelection, OutputSelection, check_output_selection, check_pooling
from regtta.statistics import SourceStatistics


def check(
    model: nn.Module,
    batch: object,
    source: SourceStatistics | str | Path | None = None,
    *,
    method: Method | str = "ssa",
    head: str | None = None,
    inputs: InputSelection | None = None,
    output: OutputSelection | None = None,
    features: FeaturePooling | None = None,
    **overrides: object,
) -> CheckResult:
    """Check that a model, a batch and source statistics fit a method, and estimate the cost of a step.

    Nothing is raised for a problem of the model, the data or the statistics: each becomes a finding that says what to
    do. The model is not changed; private copies of it run forward passes and a few adaptation steps.

    Args:
        model: the trained model.
        batch: a batch of target data, as :meth:`regtta.Adapter.adapt` takes it; labels in it are ignored.
        source: source statistics or their file; without them, whatever needs them is not checked.
        method: the method or its name.
        head: the head; by default that of ``source``, else found.
        inputs: how a batch becomes the arguments of the model, see :class:`regtta.Adapter`.
        output: which part of what the model returns is the prediction.
        features: function from the head's input to features ``(B, D)``.
        overrides: fields of the method to change, such as ``lr=1e-4``.

    Returns:
        The findings. ``result.ok`` is True if there are no errors, and ``print(result)`` shows all of them.

    Example:
        >>> import torch, regtta
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
        >>> source = regtta.collect(model, torch.randn(100, 3).split(50))
        >>> result = regtta.check(model, torch.randn(32, 3) + 1, source)
        >>> result.ok, result.head, result.features, result.moving
        (True, '2', 8, ('1.weight', '1.bias'))
        >>> regtta.check(model, torch.randn(32, 4), source).errors[0][:31]
        'The model cannot take the batch'
    """
    if isinstance(model, nn.Module):
        check_head_name(model, head)
    with torch.inference_mode(False), capture_warnings() as logged:
        run = CheckRun(model, head, check_output_selection(output), check_pooling(features), logged)
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("method", lambda: run.read_method(method, overrides)),
            ("statistics", lambda: run.read_source(source)),
            ("model", run.check_model),
            ("batch", lambda: run.read_batch(batch, inputs)),
            ("BatchNorm", run.check_batch_norm),
            ("head", run.check_head),
            ("features", run.check_features),
            ("parameters", run.check_moving),
            ("batch size", run.check_batch_size),
            ("statistics", run.check_source),
            ("preprocessing", run.check_preprocessing),
            ("method", run.check_cost),
        )
        for topic, step in steps:
            with run.catching(topic):
                step()
        for message in logged:
            run.warn("method", message)
    return run.result()
