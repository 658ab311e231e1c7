"""Streams that hand out the source model's predictions, or a mixture of both models, while they adapt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from regtta.engine.forward import ForwardRunner, Shard
from regtta.engine.learner import Learner
from regtta.engine.mixture import Mixture
from regtta.engine.prediction_history import PredictionHistory, read_labels
from regtta.engine.stream import Stream, StreamStep
from regtta.errors import MismatchError, OptionError
from regtta.execution import Communicator
from regtta.guards import Guard
from regtta.methods import MethodContext
from regtta.models import Forward, Inputs
from regtta.options import check_choice, check_positive_int
from regtta.persistence import require_bool, require_mapping, require_tensor
from regtta.statistics import SourceStatistics
from regtta.types import FeedbackScores

Served = Literal["adapted", "source", "mixture"]
Limit = float | Sequence[float] | Tensor

DEVIATIONS = 4  # standard deviations of the source model's outputs to each side that the default range covers
_HEAD_TOLERANCE = 1e-2  # largest difference between predictions and the head's outputs, relative to range and outputs
_ROUNDING = 1e-6  # largest difference between two ranges that are the same, in widths of the range
_NO_RANGE = (
    "There are no source statistics to estimate it from. Pass feedback_range=(low, high), or "
    "source=regtta.collect(model, loader)."
)
_TRANSFORMED = (
    "The predictions of the model are not the outputs of its head, so that the range of the labels is not known from "
    "the source statistics. Pass feedback_range=(low, high)."
)


@dataclass(frozen=True)
class ServingOptions:
    """Which predictions an adapter hands out, and how labels that come late are used.

    Attributes:
        serve: ``"adapted"``, ``"source"`` or ``"mixture"``.
        feedback_range: smallest and largest label, each a number or one number per output; ``None`` for 4 standard
            deviations of the source model's outputs to each side of their mean. Without it and without source
            statistics, ``"source"`` takes no labels.
        feedback_memory: number of samples whose predictions are kept for labels that come late.
    """

    serve: Served = "adapted"
    feedback_range: tuple[Limit, Limit] | None = None
    feedback_memory: int = 10_000

    def __post_init__(self) -> None:
        """Validate fields."""
        check_choice("serve", self.serve, get_args(Served))
        check_positive_int("feedback_memory", self.feedback_memory)
        if self.feedback_range is not None:
            _read_range(self.feedback_range)

    def check(self, source: SourceStatistics | None, processes: Communicator) -> None:
        """Raise an OptionError if these options cannot be used with the statistics and processes of an adapter."""
        if self.serve == "adapted":
            if self.feedback_range is not None:
                raise OptionError(
                    'Expected no feedback_range with serve="adapted", which takes no labels. Pass serve="mixture" or '
                    'serve="source", or omit it.'
                )
            return
        if processes.size > 1:
            raise OptionError(
                f'Expected serve="adapted" with a process group, found {self.serve!r}: predictions and labels are '
                "stored in one process. Omit process_group, or serve the adapted model."
            )
        if source is None and self.feedback_range is None and self.serve == "mixture":
            raise OptionError(f"A mixture needs the range of the labels. {_NO_RANGE}")

    def limits(self, context: MethodContext) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest label in float64, of shape ``()`` or ``(O,)``; ``(0,)`` if unknown."""
        if self.feedback_range is not None:
            return _read_range(self.feedback_range)
        if context.source is None:
            return torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
        weight, bias = _affine_map(context)
        mean, variance = context.source.output_moments(weight)
        if not bool((variance > 0).all()):
            raise OptionError("The outputs of the source model do not vary. Pass feedback_range=(low, high).")
        width = DEVIATIONS * variance.sqrt()
        return _without_single_output(mean + bias - width), _without_single_output(mean + bias + width)

    def before_start(self, outputs: Tensor) -> Tensor:
        """Return what is served for predictions of the source model while the stream has not started."""
        if self.serve != "mixture" or self.feedback_range is None:
            return outputs
        low, high = _read_range(self.feedback_range)
        return outputs.clamp(low.to(outputs), high.to(outputs))


class ServedStream(Stream):
    """Stream that hands out other predictions than the adapted model's, and learns weights from labels.

    Each batch costs one more forward pass, that of the source model.

    Attributes:
        serving: which predictions are handed out.
        mixture: the weights of both models.
        low, high: the range to which predictions and labels are clipped.
        unknown_range: reason why the range is not known, so that no labels can be given; empty if it is.
    """

    def __init__(
        self,
        learner: Learner,
        forward: ForwardRunner,
        guards: Sequence[Guard],
        processes: Communicator,
        serving: ServingOptions,
    ) -> None:
        self.serving = serving
        self.low, self.high = serving.limits(learner.context)
        self.unknown_range = "" if self.low.shape != (0,) else f"The range of the labels is not known. {_NO_RANGE}"
        estimated = serving.feedback_range is None and not self.unknown_range
        self._unchecked_head = _affine_map(learner.context) if estimated else None
        super().__init__(learner, forward, guards, processes)

    def reset(self) -> None:
        """Start a new stream from the source model, without labels."""
        super().reset()
        self.mixture = Mixture()
        self._history = PredictionHistory(self.serving.feedback_memory)

    def step(self, shard: Shard, *, frozen: bool = False) -> StreamStep:
        """Predict a batch with both models, and learn from it unless a guard rejects the batch or the step."""
        source = self._forward.source(shard)
        if self._unchecked_head is not None:
            self._check_range(source, *self._unchecked_head)
        self._check_shape(source.outputs)  # before anything is learned
        done = super().step(shard, frozen=frozen)
        weight, adapted = self.mixture.weight, done.step.predictions
        served = self._mean(source.outputs, adapted, weight) if self.serving.serve == "mixture" else source.outputs
        self._history.record(done.step.index, source.outputs, adapted, weight)
        return replace(done, step=replace(done.step, predictions=served, served=self.serving.serve))

    def predict(self, inputs: Inputs) -> Tensor:
        """Return the predictions that are handed out, in eval mode; nothing changes."""
        shard = Shard(inputs, None, (len(inputs),))
        source = self._forward.source(shard).outputs
        if self.serving.serve == "source":
            return source
        return self._mean(source, self._forward.current(shard).outputs, self.mixture.weight)

    def feedback(self, step_index: int, y: object, rows: object = None) -> FeedbackScores:
        """Count labels of an earlier batch, one after the other, and return the scores."""
        if self.unknown_range:
            raise OptionError(self.unknown_range)
        batch = self._history.find(step_index, self.batches)
        chosen, labels = read_labels(batch, y, rows)
        source, adapted = batch.source[chosen], batch.adapted[chosen]
        mean = self._mean(source, adapted, batch.weight)
        labels = labels.clamp(self.low, self.high)
        losses = torch.stack([self._losses(values, labels) for values in (source, adapted, mean)], dim=1)
        for source_loss, adapted_loss, mixture_loss in losses.tolist():
            self.mixture.update(source_loss, adapted_loss, mixture_loss)
        batch.labelled[chosen] = True
        return self.mixture.scores()

    def _mean(self, source: Tensor, adapted: Tensor, weight: float) -> Tensor:
        """Return the weighted mean of both predictions ``(B, ...)`` after projecting them into the range.

        For every label in the range, a projected prediction has at most the error of the original one, and at most the
        width of the range.
        """
        adapted, low, high = adapted.to(source.dtype), self.low.to(source), self.high.to(source)
        return torch.lerp(_project(source, adapted, low, high), _project(adapted, source, low, high), weight)

    def _losses(self, predictions: Tensor, labels: Tensor) -> Tensor:
        """Return the losses ``(R,)``: squared errors in widths of the range, at most 1, averaged over the outputs."""
        errors = ((predictions - labels) / (self.high - self.low)).square().nan_to_num(nan=1.0).clamp(max=1.0)
        return errors.flatten(1).mean(dim=1) if errors.ndim > 1 else errors

    def _check_shape(self, predictions: Tensor) -> None:
        """Raise an OptionError unless the range has one value, or one for each output in the last dimension."""
        outputs = predictions.shape[-1] if predictions.ndim > 1 else 1
        if self.low.ndim and len(self.low) != outputs and not self.unknown_range:
            raise OptionError(
                f"The range of the feedback is that of {len(self.low)} outputs, but predictions have the shape "
                f"{tuple(predictions.shape)}. Pass feedback_range=(low, high) with one number each, or one per output."
            )

    def _check_range(self, source: Forward, weight: Tensor, bias: Tensor) -> None:
        """Raise an OptionError unless the predictions of the first batch are the outputs of the head.

        The default range is that of the head's outputs, which a model may transform, for example by an exponential. In
        shadow mode, which does not need the range, the error is raised with the first labels.
        """
        expected = source.flat_features.cpu().double() @ weight.T + bias
        outputs = source.outputs.cpu().double()
        same = expected.numel() == outputs.numel()
        if same:
            allowed = _HEAD_TOLERANCE * (self.high - self.low + expected.abs())
            same = not bool(((outputs.reshape_as(expected) - expected).abs() > allowed).any())
        if not same and self.serving.serve == "mixture":
            raise OptionError(_TRANSFORMED)
        self.unknown_range = "" if same else _TRANSFORMED
        self._unchecked_head = None

    # --- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the stream with weights and predictions, as tensors and plain values."""
        feedback = {
            "low": self.low.clone(),
            "high": self.high.clone(),
            "is_transformed": self.unknown_range == _TRANSFORMED,
            "mixture": self.mixture.state_dict(),
            "history": self._history.state_dict(),
        }
        return {**super().state_dict(), "feedback": feedback}

    def _validated(self, state: object) -> dict[str, Any]:
        found = dict(require_mapping("", state))
        feedback = found.pop("feedback", None)
        found = super()._validated(found)
        if feedback is not None:  # else it is the state of a stream that served the adapted model
            self._feedback_from(feedback, found["index"])
            found["feedback"] = feedback
        return found

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        if "feedback" in state:
            self.mixture, self._history = self._feedback_from(state["feedback"], state["index"])
            if state["feedback"]["is_transformed"] and self.serving.feedback_range is None:
                self.unknown_range = _TRANSFORMED

    def _feedback_from(self, state: object, steps: int) -> tuple[Mixture, PredictionHistory]:
        """Return weights and predictions of a state, or raise an error that names the invalid field."""
        found = require_mapping("feedback", state, ("low", "high", "is_transformed", "mixture", "history"))
        require_bool("feedback/is_transformed", found["is_transformed"])
        for name, own in (("low", self.low), ("high", self.high)):
            value = require_tensor(f"feedback/{name}", found[name], tuple(own.shape), torch.float64)
            # The estimated range may be rounded differently on another machine.
            if not bool(((value.cpu() - own).abs() <= _ROUNDING * (self.high - self.low)).all()):
                raise MismatchError(
                    f"The range of the feedback differs: expected {name} {own.tolist()}, found {value.tolist()}. "
                    "Create the adapter with the feedback_range that the stream was started with."
                )
        memory = self.serving.feedback_memory
        history = PredictionHistory.from_state(found["history"], "feedback/history", memory=memory, steps=steps)
        return Mixture.from_state(found["mixture"], "feedback/mixture"), history


def _project(values: Tensor, others: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return predictions clipped to ``[low, high]``, or replaced by those of the other model where these are better.

    A value outside the range is replaced if the other one is inside and closer to every number of the range: for a
    value above it, if ``value − high ≥ high − other``. A NaN is replaced in any case.
    """
    inside = (others >= low) & (others <= high)
    above, below = values - high, low - values
    farther = ((above > 0) & (above >= high - others)) | ((below > 0) & (below >= others - low))
    return torch.where((inside & farther) | values.isnan(), others, values).clamp(low, high)


def _affine_map(context: MethodContext) -> tuple[Tensor, Tensor]:
    """Return copies of weight ``(O, D)`` and bias ``(O,)`` of the head, in float64 on the CPU."""
    head = context.require_head()
    weight, bias = head.weight, head.bias
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return tuple(part.detach().to("cpu", torch.float64, copy=True) for part in (weight, bias))  # type: ignore[return-value]


def _read_range(value: object) -> tuple[Tensor, Tensor]:
    """Return the limits of a range as float64 tensors of shape ``()`` or ``(O,)``; raise an OptionError."""
    error = OptionError(
        f"Expected feedback_range to be (low, high) with low < high, each a finite number or one number per output, "
        f"found {value!r:.80}."
    )
    if not isinstance(value, tuple | list) or len(value) != 2 or any(isinstance(limit, bool | str) for limit in value):
        raise error
    try:
        low, high = (torch.as_tensor(limit).detach().to("cpu", torch.float64) for limit in value)
        low, high = low + torch.zeros_like(high), high + torch.zeros_like(low)
    except (TypeError, ValueError, RuntimeError):
        raise error from None
    if low.ndim > 1 or not low.numel() or not bool((low < high).all()) or not bool((high - low).isfinite().all()):
        raise error
    return _without_single_output(low.clone()), _without_single_output(high.clone())


def _without_single_output(limit: Tensor) -> Tensor:
    """Return a limit of one output as a scalar, which fits predictions ``(B,)`` and ``(B, 1)``."""
    return limit.reshape(()) if limit.numel() == 1 else limit


__all__ = ["DEVIATIONS", "Limit", "Served", "ServedStream", "ServingOptions"]
