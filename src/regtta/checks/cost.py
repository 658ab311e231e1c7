"""Measurement of the duration of a prediction and of an adaptation step."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from regtta.adapter import Adapter
from regtta.checks.result import Level
from regtta.methods import Method
from regtta.models import FeaturePooling, Inputs, OutputSelection
from regtta.statistics import SourceStatistics, collect

REPEATS = 5
_MAX_WARM_UP = 64  # batches that may fill a window
_NAMED = 3


@dataclass(frozen=True)
class StepCost:
    """Durations of predictions and steps on one batch.

    Attributes:
        predict_seconds: median duration of a prediction.
        step_seconds: median duration of a step; ``None`` if the batch was not learned from.
        reason: why the batch was not learned from; empty if it was.
        unmoved: names of trainable parameters that did not change.
    """

    predict_seconds: float
    step_seconds: float | None
    reason: str = ""
    unmoved: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Duration of a step in units of that of a prediction."""
        return None if self.step_seconds is None else self.step_seconds / self.predict_seconds

    @property
    def level(self) -> Level:
        """``"warning"`` if the batch was not learned from."""
        return "warning" if self.step_seconds is None else "ok"

    @property
    def message(self) -> str:
        """The durations as text."""
        if self.step_seconds is None or self.ratio is None:
            return f"The batch is not learned from: {self.reason}. A step was not measured."
        return (
            f"A step on this batch takes about {_format(self.step_seconds)}, {self.ratio:.1f} times as long as a "
            f"prediction ({_format(self.predict_seconds)}); an estimate, measured here."
        )

    def describe_unmoved(self) -> str:
        """Return a warning about parameters that do not change, or an empty text."""
        if not self.unmoved:
            return ""
        names, more = ", ".join(self.unmoved[:_NAMED]), len(self.unmoved) - _NAMED
        return (
            f"{len(self.unmoved)} of the tensors to adapt have no effect on the loss of this batch and do not move: "
            f"{names}{f' and {more} more' if more > 0 else ''}. They are unused, or forward() cuts the gradient by "
            "detach() or torch.no_grad()."
        )


def measure_step(
    model: nn.Module,
    method: Method,
    inputs: Inputs,
    source: SourceStatistics | None,
    *,
    head: str | None,
    output: OutputSelection | None,
    features: FeaturePooling | None,
) -> StepCost:
    """Adapt a private copy of ``model`` to one batch a few times and return the durations.

    Without source statistics, those of the batch itself take their place: the cost does not depend on their values.
    """
    if source is None and method.needs_source:
        source = collect(model, [inputs], head=head, output=output, features=features, methods=[method])
    adapter = Adapter(
        model, method, source, head=head, output=output, features=features, allow_mismatch=source is not None
    )
    before = {name: value.detach().clone() for name, value in adapter.model.named_parameters()}
    step = adapter.adapt(inputs)
    for _ in range(_MAX_WARM_UP):
        if step.adapted or not step.reason.startswith("the window"):
            break
        step = adapter.adapt(inputs)
    if not step.adapted:
        return StepCost(1.0, None, step.reason)
    unmoved = tuple(
        name
        for name, value in adapter.model.named_parameters()
        if value.requires_grad and torch.equal(value, before[name])
    )
    predictions, steps = [], []
    for _ in range(REPEATS):
        predictions.append(_measure(lambda: adapter.predict(inputs), inputs))
        steps.append(_measure(lambda: adapter.adapt(inputs), inputs))
    return StepCost(statistics.median(predictions), statistics.median(steps), unmoved=unmoved)


def _measure(work: Callable[[], object], inputs: Inputs) -> float:
    on_gpu = inputs.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(inputs.device)
    start = time.perf_counter()
    work()
    if on_gpu:
        torch.cuda.synchronize(inputs.device)
    return max(time.perf_counter() - start, 1e-9)


def _format(seconds: float) -> str:
    return f"{float(f'{seconds * 1000:.2g}'):g} ms" if seconds < 1 else f"{float(f'{seconds:.2g}'):g} s"
