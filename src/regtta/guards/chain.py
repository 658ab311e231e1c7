"""A batch on its way through the guards of a stream, and the chain that asks all of them."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regtta.execution import SINGLE_PROCESS, Communicator
from regtta.guards.base import Guard, GuardContext, GuardState, MarkGood, Rollback, Ruling, StepStats
from regtta.models import Forward, Inputs
from regtta.persistence import require_mapping, validate_part
from regtta.statistics import ColumnArray, Whitening, column_values, to_column_array

RunPass = Callable[[Inputs, Sequence[int]], Forward]

FEW = 64  # number of coordinates up to which their products are faster on the CPU than launching GPU kernels


class IncomingBatch:
    """Batch that has not been learned from yet, with lazily computed and cached forward passes in eval mode.

    Args:
        inputs: ``(B, ...)`` on the model's device, one tensor or several; with several processes, the shard of this
            process.
        current: runs the current model, given the shard of this process and the number of samples of each process.
        source: runs the source model; not called while the current model equals the source model.
        moved: True if the current model differs from the source model.
        processes: the processes that share the batch.
        counts: number of samples of each process.
    """

    def __init__(
        self,
        inputs: Inputs,
        current: RunPass,
        source: RunPass | None = None,
        *,
        moved: bool = False,
        processes: Communicator = SINGLE_PROCESS,
        counts: Sequence[int] | None = None,
    ) -> None:
        self.inputs = inputs
        self.tensors = (inputs,) if isinstance(inputs, Tensor) else inputs.tensors
        self.processes = processes
        self.counts = [len(inputs)] if counts is None else counts
        self.size = sum(self.counts)
        self.moved = moved
        self._run_current = current
        self._run_source = source
        self._whitened: dict[tuple[int, int], Tensor] = {}
        self._here: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def peaks(self) -> Sequence[float]:
        """Largest magnitude ``(C,)`` of each column of the inputs over all processes.

        Not finite where a sample is not finite; empty for integer inputs and for an empty batch.
        """
        return self._peaks_and_variation[0]

    def columns(self) -> ColumnArray:
        """Return the samples of all processes as columns ``(C, B)``."""
        return to_column_array(self._values)

    @cached_property
    def not_finite(self) -> Tensor | None:
        """Mask ``(B,)`` of this process's samples with NaN or infinite values; None if no process has such samples."""
        if self._is_finite(self.peaks):
            return None
        finite = [tensor.isfinite() for tensor in self.tensors]
        rows = ~torch.stack([each.flatten(1).all(dim=1) if each.ndim > 1 else each for each in finite]).all(dim=0)
        return rows if bool(self.processes.reduce(rows.sum())) else None

    @cached_property
    def varied(self) -> bool:
        """True if not all samples of all processes are equal."""
        return self._peaks_and_variation[1] or any(map(self._varies, self.tensors))

    def _varies(self, tensor: Tensor) -> bool:
        counts = [min(1, count) for count in self.counts]
        first_of_all = self.processes.gather(tensor[:1], counts)[:1]
        return bool(self.processes.reduce((tensor != first_of_all).sum()))

    def inspect_inputs(self) -> None:
        """Compute ``peaks``, ``not_finite`` and ``varied`` at once where that is cheap, for guards that read them."""
        peaks, differ = self._peaks_and_variation
        cached: dict[str, object] = {"peaks": peaks}
        if self._is_finite(peaks):
            cached["not_finite"] = None
        if differ:
            cached["varied"] = True
        self.__dict__.update(cached)

    def _is_finite(self, peaks: Sequence[float]) -> bool:
        return all(map(math.isfinite, peaks)) and not any(tensor.is_complex() for tensor in self.tensors)

    def without(self, rows: Tensor) -> "IncomingBatch":
        """Return the batch without the samples of this process in the mask ``rows`` ``(B,)``.

        Cached forward passes are reused for the remaining samples.
        """
        kept: Inputs = self.inputs[~rows]
        counts = self.processes.counts(len(kept))
        rest = IncomingBatch(
            kept, self._run_current, self._run_source, moved=self.moved, processes=self.processes, counts=counts
        )
        cached = {name: self.__dict__[name] for name in ("source", "current") if name in self.__dict__}
        if cached:
            kept_of_all = ~self.processes.gather(rows.to(torch.uint8), self.counts).bool()
            for name, forward in cached.items():
                rest.__dict__[name] = Forward(forward.features[kept_of_all], forward.outputs[kept_of_all])
        if not self.moved and cached:  # both names refer to the same forward pass
            rest.__dict__["source"] = rest.current
        return rest

    @cached_property
    def current(self) -> Forward:
        """Features and outputs of the current model."""
        if not self.moved and "source" in self.__dict__:
            return self.source
        return self._run_current(self.inputs, self.counts)

    @cached_property
    def source(self) -> Forward:
        """Features and outputs of the source model."""
        if not self.moved or self._run_source is None:
            return self.current
        return self._run_source(self.inputs, self.counts)

    def coordinates(self, whitening: Whitening, forward: Forward) -> Tensor:
        """Return whitened coordinates ``(B, k)`` of one of the two forward passes, cached for all guards."""
        key = (id(whitening), id(forward))
        if key not in self._whitened:
            self._whitened[key] = whitening(forward.features if forward.features.ndim == 2 else forward.flat_features)
        return self._whitened[key]

    def coordinates_float64(self, whitening: Whitening, forward: Forward) -> Tensor:
        """Return :meth:`coordinates` in float64, on the CPU if ``k`` is small: small sums are slow on a GPU."""
        key = (id(whitening), id(forward))
        if key not in self._here:
            values = self.coordinates(whitening, forward)
            self._here[key] = (values.cpu() if values.shape[1] <= FEW else values).double()
        return self._here[key]

    @property
    def cached_source(self) -> Forward | None:
        """Forward pass of the source model if it has been computed, else None."""
        return self.__dict__.get("source") or (None if self.moved else self.__dict__.get("current"))

    @cached_property
    def _values(self) -> Tensor:
        floating = [column_values(tensor) for tensor in self.tensors if tensor.is_floating_point()]
        values = floating[0] if len(floating) == 1 else torch.cat(floating, dim=1)
        return values if self.processes.size == 1 else self.processes.gather(values, self.counts)

    @cached_property
    def _peaks_and_variation(self) -> tuple[Sequence[float], bool]:
        """The peaks, and True if the first and the last sample of a single process differ, in one device transfer."""
        tensors, alone = self.tensors, self.processes.size == 1
        if self.size == 0 or not any(tensor.is_floating_point() for tensor in tensors):
            return (), False
        peaks = self._values.abs().amax(dim=0)
        if alone and len(tensors) == 1 and tensors[0].is_cuda:
            *found, distance = torch.cat([peaks, torch.dist(tensors[0][-1], tensors[0][0], p=math.inf)[None]]).tolist()
            return found, distance != 0
        return peaks.tolist(), alone and not all(torch.equal(tensor[-1], tensor[0]) for tensor in tensors)


@dataclass(frozen=True)
class Screened:
    """A batch after the guards were asked before the step.

    Attributes:
        batch: the remaining samples.
        ruling: ``None`` to learn from them, or why not.
        kept: indices of the remaining samples of this process; ``None`` if no process excluded any.
        excluded_rows: indices of the excluded samples of this process.
    """

    batch: IncomingBatch
    ruling: Ruling = None
    kept: Tensor | None = None
    excluded_rows: tuple[int, ...] = ()


class GuardChain:
    """All guards of a stream, called as one.

    Args:
        guards: guards in the order in which they are called.
        context: information for the start of the stream.
        processes: processes that must agree on every ruling.
    """

    def __init__(
        self, guards: Sequence[Guard], context: GuardContext, processes: Communicator = SINGLE_PROCESS
    ) -> None:
        self.states = [guard.start(context) for guard in guards]
        self._processes = processes
        self._excluding = self._overriding("exclude_rows")
        self._before = self._overriding("before_step")
        self._after = self._overriding("after_step")

    def _overriding(self, name: str) -> list[GuardState]:
        return [state for state in self.states if getattr(type(state), name) is not getattr(GuardState, name)]

    def before_step(self, batch: IncomingBatch) -> Screened:
        """Exclude the samples that any guard names, then ask all guards whether to learn from the others.

        Every guard is asked, since each updates its state, unless a guard finds the batch unusable. A rollback has
        precedence over a rejection.
        """
        screened = self._without_excluded(batch) if self._excluding else Screened(batch)
        if screened.ruling is not None:
            return screened
        refusals: list[str | Rollback] = []
        for guard in self._before:
            ruling = guard.before_step(screened.batch)
            if isinstance(ruling, str | Rollback):
                refusals.append(ruling)
                if guard.unusable:
                    break
        if self._processes.size == 1 and not refusals:
            return screened
        rollbacks = [ruling for ruling in refusals if isinstance(ruling, Rollback)]
        agreed = self._agreed(next(iter(rollbacks or refusals), None))
        return Screened(screened.batch, agreed, screened.kept, screened.excluded_rows)

    def _without_excluded(self, batch: IncomingBatch) -> Screened:
        """Exclude samples; each guard sees those that the guards before it left."""
        batch.inspect_inputs()
        size, rest, kept, reasons = len(batch.inputs), batch, None, []
        for guard in self._excluding:
            exclusion = guard.exclude_rows(rest)
            if exclusion is not None:
                rows = exclusion.rows
                kept = (torch.arange(size, device=rows.device) if kept is None else kept)[~rows]
                reasons.append(exclusion.reason)
                rest = rest.without(rows)
        if kept is None:
            return Screened(batch)
        excluded = tuple(sorted(set(range(size)) - set(kept.tolist())))
        return Screened(rest, None if rest.size else reasons[0], kept, excluded)

    def after_step(self, stats: StepStats) -> Ruling:
        """Ask the guards in order until one rejects the step; the guards after it are not asked."""
        keep: MarkGood | None = None
        for guard in self._after:
            ruling = guard.after_step(stats)
            if isinstance(ruling, str | Rollback):
                return ruling if self._processes.size == 1 else self._agreed(ruling)
            keep = ruling or keep
        return keep if self._processes.size == 1 else self._agreed(keep)

    def _agreed(self, ruling: Ruling) -> Ruling:
        """Return the first rejection of any process; a user-defined guard may see only the shard of one process."""
        if self._processes.size == 1:
            return ruling
        rulings = [_decode(text) for text in self._processes.texts(_encode(ruling))]
        refusals = [found for found in rulings if isinstance(found, str | Rollback)]
        return next(iter(refusals or (found for found in rulings if found is not None)), None)

    def on_rollback(self) -> None:
        """Notify every guard that the model was rolled back."""
        for guard in self.states:
            guard.on_rollback()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each guard, by its position."""
        return {str(number): guard.state_dict() for number, guard in enumerate(self.states)}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError if a guard finds its part of ``state`` invalid."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.states))])
        for number, guard in enumerate(self.states):
            validate_part(guard, found[str(number)], f"{path}/{number} ({type(guard).__name__.strip('_')})")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`."""
        for number, guard in enumerate(self.states):
            guard.load_state_dict(state[str(number)])


def _encode(ruling: Ruling) -> str | None:
    """Return a ruling as text, to be sent to other processes."""
    if ruling is None:
        return None
    if isinstance(ruling, MarkGood):
        return json.dumps({"keep": True})
    if isinstance(ruling, Rollback):
        return json.dumps({"reason": ruling.reason, "to": ruling.to})
    return json.dumps({"reason": ruling})


def _decode(text: str | None) -> Ruling:
    said = {} if text is None else json.loads(text)
    if "to" in said:
        return Rollback(said["reason"], said["to"])
    reason: str | None = said.get("reason")
    return MarkGood() if "keep" in said else reason
