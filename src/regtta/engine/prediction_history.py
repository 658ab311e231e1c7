"""Predictions of the source model and the adapted model for recent samples, kept until their labels arrive."""

import itertools
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.persistence import require_count, require_mapping, require_sequence, require_tensor, state_error

_MAX_DIMENSIONS = 8  # of predictions in a saved state


@dataclass(frozen=True)
class PredictedBatch:
    """Predictions of one batch, in float64 on the CPU.

    Attributes:
        source: ``(B, ...)``, predictions of the source model.
        adapted: ``(B, ...)``, predictions of the adapted model.
        weight: weight of the adapted model in the mixture when the batch was predicted.
        labelled: ``(B,)`` bool, True for samples whose label has been counted.
    """

    source: Tensor
    adapted: Tensor
    weight: float
    labelled: Tensor


class PredictionHistory:
    """Predictions of the last batches, by the index of their step.

    The oldest batches are dropped as soon as more than ``memory`` samples are stored; the last batch is always kept.

    Args:
        memory: largest number of samples.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.samples = 0
        self._batches: OrderedDict[int, PredictedBatch] = OrderedDict()

    def record(self, step: int, source: Tensor, adapted: Tensor, weight: float) -> None:
        """Store the predictions ``(B, ...)`` of a step, and drop the oldest ones beyond the memory."""
        if not len(source):  # no sample that could be labelled
            return
        labelled = torch.zeros(len(source), dtype=torch.bool)
        copies = [values.detach().to("cpu", torch.float64, copy=True) for values in (source, adapted)]
        self._append(step, PredictedBatch(copies[0], copies[1], weight, labelled))

    def _append(self, step: int, batch: PredictedBatch) -> None:
        self._batches[step] = batch
        self.samples += len(batch.source)
        while self.samples > self.memory and len(self._batches) > 1:
            self.samples -= len(self._batches.popitem(last=False)[1].source)

    def find(self, step_index: object, steps: int) -> PredictedBatch:
        """Return the predictions of a step; raise a BatchError if there are none.

        Args:
            step_index: index of the step, as in ``Step.index``.
            steps: number of steps so far.
        """
        if isinstance(step_index, bool) or not isinstance(step_index, int):
            raise BatchError(f"Expected step_index to be the index of a step, found {step_index!r}. Pass step.index.")
        if step_index in self._batches:
            return self._batches[step_index]
        if not 0 <= step_index < steps:
            raise BatchError(
                f"Expected the index of one of the {steps} steps so far, found {step_index}. Pass step.index of the "
                "step that the labels belong to."
            )
        oldest = next(iter(self._batches), steps)
        raise BatchError(
            f"The predictions of step {step_index} are no longer stored: feedback_memory={self.memory} samples reach "
            f"back to step {oldest}. Create the adapter with a larger feedback_memory, or give labels earlier."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the predictions as two flat tensors, with the shape of each batch."""
        batches = list(self._batches.values())
        return {
            "steps": list(self._batches),
            "shapes": [list(batch.source.shape) for batch in batches],
            "weights": torch.tensor([batch.weight for batch in batches], dtype=torch.float64),
            "source": _flat([batch.source for batch in batches]),
            "adapted": _flat([batch.adapted for batch in batches]),
            "labelled": torch.cat([torch.zeros(0, dtype=torch.bool), *(batch.labelled for batch in batches)]),
        }

    @classmethod
    def from_state(cls, state: object, path: str, *, memory: int, steps: int) -> "PredictionHistory":
        """Return a history from :meth:`state_dict`; raise a StateError for anything else.

        Args:
            state: the state.
            path: path of the state, for errors.
            memory: largest number of samples of the new history, which may be smaller than that of the old one.
            steps: number of steps of the stream so far.
        """
        keys = ("steps", "shapes", "weights", "source", "adapted", "labelled")
        found: Mapping[str, Any] = require_mapping(path, state, keys)
        indices = _require_indices(f"{path}/steps", found["steps"], steps)
        shapes = [
            _require_shape(f"{path}/shapes/{number}", shape)
            for number, shape in enumerate(require_sequence(f"{path}/shapes", found["shapes"]))
        ]
        if len(shapes) != len(indices):
            raise state_error(f"{path}/shapes", f"a list of {len(indices)} shapes", f"one of {len(shapes)}")
        weights = require_tensor(f"{path}/weights", found["weights"], (len(indices),), torch.float64, minimum=0.0)
        if bool((weights > 1).any()):
            raise state_error(f"{path}/weights", "at most 1 everywhere", float(weights.max()))
        sizes, rows = [math.prod(shape) for shape in shapes], [shape[0] for shape in shapes]
        source, adapted = (_require_values(f"{path}/{name}", found[name], sum(sizes)) for name in ("source", "adapted"))
        labelled = require_tensor(f"{path}/labelled", found["labelled"], (sum(rows),), torch.bool).cpu()
        history = cls(memory)
        parts = zip(torch.split(source, sizes), torch.split(adapted, sizes), torch.split(labelled, rows), strict=True)
        for step, shape, weight, (own, other, mask) in zip(indices, shapes, weights.tolist(), parts, strict=True):
            values = own.reshape(shape).clone(), other.reshape(shape).clone()
            history._append(step, PredictedBatch(*values, weight, mask.clone()))
        return history


def read_labels(batch: PredictedBatch, y: object, rows: object) -> tuple[list[int], Tensor]:
    """Return the rows and their labels ``(R, ...)`` in float64; raise a BatchError for labels that do not fit.

    Args:
        batch: predictions of the batch that the labels belong to.
        y: labels of the shape of the predictions of these rows; ``(R,)`` is accepted for predictions ``(B, 1)``.
        rows: positions of the labelled samples in the batch; ``None`` for all of them, in order.
    """
    size, shape = len(batch.source), tuple(batch.source.shape[1:])
    chosen = list(range(size)) if rows is None else _read_rows(rows, size)
    twice = [row for row in chosen if batch.labelled[row]]
    if twice:
        raise BatchError(
            f"Expected one label for each sample, found a second one for rows {twice[:10]}. Pass rows=... without the "
            "samples that have been labelled already."
        )
    try:
        labels = torch.as_tensor(y).detach().to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BatchError(f"Expected y to be a tensor or an array of numbers, found {type(y).__name__}.") from error
    one_value = labels.shape == (len(chosen),) and math.prod(shape) == 1
    if not one_value and labels.shape != (len(chosen), *shape):
        raise BatchError(
            f"Expected labels of shape {(len(chosen), *shape)}, one for each of {len(chosen)} samples, found "
            f"{tuple(labels.shape)}. Pass rows=... if only some samples are labelled."
        )
    if not bool(labels.isfinite().all()):
        raise BatchError("Expected finite labels, found NaN or infinite ones. Pass rows=... without these samples.")
    return chosen, labels.reshape(len(chosen), *shape)


def _read_rows(rows: object, size: int) -> list[int]:
    values = rows.tolist() if isinstance(rows, Tensor | np.ndarray) else rows
    if not isinstance(values, Sequence) or any(
        isinstance(row, bool) or not isinstance(row, SupportsIndex) for row in values
    ):
        raise BatchError(f"Expected rows to be a list of positions in the batch, found {rows!r:.80}.")
    found = [index(row) for row in values]
    if any(not 0 <= row < size for row in found) or len(set(found)) < len(found):
        raise BatchError(f"Expected different rows from 0 to {size - 1}, found {str(found)[:80]}.")
    return found


def _flat(values: Sequence[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.float64), *(value.flatten() for value in values)])


def _require_indices(path: str, value: object, steps: int) -> list[int]:
    indices = [
        require_count(f"{path}/{number}", index, maximum=max(steps - 1, 0))
        for number, index in enumerate(require_sequence(path, value, maximum=steps))
    ]
    if any(after <= before for before, after in itertools.pairwise(indices)):
        raise state_error(path, "increasing", "a list that is not")
    return indices


def _require_shape(path: str, value: object) -> tuple[int, ...]:
    sizes = require_sequence(path, value, maximum=_MAX_DIMENSIONS)
    if not sizes:
        raise state_error(path, "a shape with at least one dimension", "an empty list")
    return tuple(require_count(f"{path}/{number}", size, minimum=1) for number, size in enumerate(sizes))


def _require_values(path: str, value: object, count: int) -> Tensor:
    """Return a flat tensor; unlike other states, predictions may be NaN, for samples that were not finite."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        raise state_error(path, f"a tensor of shape ({count},) and torch.float64", value)
    if value.shape != (count,) or value.dtype != torch.float64:
        raise state_error(path, f"a tensor of shape ({count},) and torch.float64", value)
    return value.cpu()
