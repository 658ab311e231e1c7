"""Combination of all guards of one stream."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regtta.execution import ALONE, Processes
from regtta.guards.base import Guard, GuardContext, GuardState, IncomingBatch, MarkGood, Rollback, Ruling, StepStats
from regtta.persistence import require_mapping, validate_part


@dataclass(frozen=True)
class Screened:
    """Batch without the samples that guards excluded.

    Attributes:
        batch: the batch to learn from.
        size: number of samples of this process before exclusion.
        kept: indices of the samples to learn from; ``None`` if no process excluded any.
        reasons: reasons for the exclusions.
    """

    batch: IncomingBatch
    size: int
    kept: Tensor | None = None
    reasons: tuple[str, ...] = ()

    @property
    def nothing_left(self) -> bool:
        """True if all samples of all processes were excluded."""
        return bool(self.reasons) and self.batch.size == 0

    @cached_property
    def excluded_rows(self) -> tuple[int, ...]:
        """Indices of the excluded samples."""
        return () if self.kept is None else tuple(sorted(set(range(self.size)) - set(self.kept.tolist())))

    def joined(self, kept: Tensor, excluded: Tensor | None) -> Tensor:
        """Merge the predictions of kept and excluded samples, in the original order."""
        if self.kept is None or excluded is None:
            return kept
        predictions = kept.new_empty(self.size, *kept.shape[1:])
        predictions[self.kept] = kept
        predictions[list(self.excluded_rows)] = excluded.to(kept.dtype)
        return predictions


class GuardChain:
    """Chain of the guards of one stream.

    Args:
        guards: the guards, in order of evaluation.
        context: information that the guards receive at the start of the stream.
        processes: processes that share the stream; a rejection in one of them applies to all.
    """

    def __init__(self, guards: Sequence[Guard], context: GuardContext, processes: Processes = ALONE) -> None:
        self.states = [guard.start(context) for guard in guards]
        self._excluding = [each for each in self.states if type(each).exclude_rows is not GuardState.exclude_rows]
        self._processes = processes

    def screen(self, batch: IncomingBatch) -> Screened:
        """Exclude the samples that any guard returns; each guard sees the samples that earlier guards kept."""
        screened = Screened(batch, len(batch.inputs))
        for guard in self._excluding:
            exclusion = guard.exclude_rows(screened.batch)
            if exclusion is not None:
                rows, kept = exclusion.rows, screened.kept
                kept = torch.arange(len(rows), device=rows.device) if kept is None else kept
                reasons = (*screened.reasons, exclusion.reason)
                screened = Screened(screened.batch.without(rows), screened.size, kept[~rows], reasons)
        return screened

    def before_step(self, batch: IncomingBatch) -> Ruling:
        """Call every guard, since each updates its state; return the first rollback, or else the first rejection."""
        rejections: list[str | Rollback] = []
        for guard in self.states:
            ruling = guard.before_step(batch)
            if isinstance(ruling, str | Rollback):
                rejections.append(ruling)
                if guard.unusable:
                    break
        rollbacks = [ruling for ruling in rejections if isinstance(ruling, Rollback)]
        return self._agreed(next(iter(rollbacks or rejections), None))

    def after_step(self, stats: StepStats) -> Ruling:
        """Call the guards in order and return the first rejection; later guards are then not called."""
        keep: MarkGood | None = None
        for guard in self.states:
            ruling = guard.after_step(stats)
            if isinstance(ruling, str | Rollback):
                return self._agreed(ruling)
            keep = ruling or keep
        return self._agreed(keep)

    def _agreed(self, ruling: Ruling) -> Ruling:
        """Return the first rejection of any process, since a user-defined guard may depend on one process's shard."""
        if self._processes.size == 1:
            return ruling
        rulings = [_decoded(text) for text in self._processes.texts(_encoded(ruling))]
        rejections = [found for found in rulings if isinstance(found, str | Rollback)]
        return next(iter(rejections or (found for found in rulings if found is not None)), None)

    def on_rollback(self) -> None:
        """Notify every guard of a rollback."""
        for guard in self.states:
            guard.on_rollback()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all guards, by position."""
        return {str(number): guard.state_dict() for number, guard in enumerate(self.states)}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError if a guard rejects its part of ``state``."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.states))])
        for number, guard in enumerate(self.states):
            validate_part(guard, found[str(number)], f"{path}/{number} ({type(guard).__name__.strip('_')})")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`."""
        for number, guard in enumerate(self.states):
            guard.load_state_dict(state[str(number)])


def _encoded(ruling: Ruling) -> str | None:
    """Return a ruling as JSON, to send to other processes."""
    if ruling is None:
        return None
    if isinstance(ruling, MarkGood):
        return json.dumps({"keep": True})
    if isinstance(ruling, Rollback):
        return json.dumps({"reason": ruling.reason, "to": ruling.to})
    return json.dumps({"reason": ruling})


def _decoded(text: str | None) -> Ruling:
    fields = {} if text is None else json.loads(text)
    if "to" in fields:
        return Rollback(fields["reason"], fields["to"])
    reason: str | None = fields.get("reason")
    return MarkGood() if "keep" in fields else reason
