"""All guards of one stream, asked as one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regtta.guards.base import Guard, GuardContext, GuardState, IncomingBatch, Keep, Rollback, Ruling, StepStats
from regtta.processes import ALONE, Processes
from regtta.state_validation import require_mapping, validate_part


@dataclass(frozen=True)
class Screened:
    """A batch less the samples that guards left out.

    Attributes:
        batch: the batch to learn from.
        size: how many samples this process was given.
        kept: indices of those to learn from; ``None`` where no process left one out.
        reasons: why others were left out.
    """

    batch: IncomingBatch
    size: int
    kept: Tensor | None = None
    reasons: tuple[str, ...] = ()

    @property
    def nothing_left(self) -> bool:
        """Whether every sample of every process was left out."""
        return bool(self.reasons) and self.batch.size == 0

    @cached_property
    def excluded_rows(self) -> tuple[int, ...]:
        """Indices of the samples that were left out."""
        return () if self.kept is None else tuple(sorted(set(range(self.size)) - set(self.kept.tolist())))

    def joined(self, kept: Tensor, excluded: Tensor | None) -> Tensor:
        """Return the predictions of all samples in their order, given those of both parts."""
        if self.kept is None or excluded is None:
            return kept
        predictions = kept.new_empty(self.size, *kept.shape[1:])
        predictions[self.kept] = kept
        predictions[list(self.excluded_rows)] = excluded.to(kept.dtype)
        return predictions


class GuardChain:
    """All guards of a stream as one.

    Args:
        guards: in the order in which they are asked.
        context: what they begin with.
        processes: that must all abide by what any of them refuses.
    """

    def __init__(self, guards: Sequence[Guard], context: GuardContext, processes: Processes = ALONE) -> None:
        self.states = [guard.start(context) for guard in guards]
        self._excluding = [each for each in self.states if type(each).exclude_rows is not GuardState.exclude_rows]
        self._processes = processes

    def screen(self, batch: IncomingBatch) -> Screened:
        """Leave out the samples that any guard names; each sees what the ones before it left."""
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
        """Ask every guard, for each has its memory to keep; an order to go back outweighs a mere no."""
        refusals: list[str | Rollback] = []
        for guard in self.states:
            ruling = guard.before_step(batch)
            if isinstance(ruling, str | Rollback):
                refusals.append(ruling)
                if guard.unusable:
                    break
        orders = [ruling for ruling in refusals if isinstance(ruling, Rollback)]
        return self._agreed(next(iter(orders or refusals), None))

    def after_step(self, stats: StepStats) -> Ruling:
        """Ask in turn: the first refusal stands, and those after it have no step to judge."""
        keep: Keep | None = None
        for guard in self.states:
            ruling = guard.after_step(stats)
            if isinstance(ruling, str | Rollback):
                return self._agreed(ruling)
            keep = ruling or keep
        return self._agreed(keep)

    def _agreed(self, ruling: Ruling) -> Ruling:
        """The first refusal of any process, for a guard of the user's own may see only what lies in one of them."""
        if self._processes.size == 1:
            return ruling
        rulings = [_read(text) for text in self._processes.texts(_written(ruling))]
        refusals = [found for found in rulings if isinstance(found, str | Rollback)]
        return next(iter(refusals or (found for found in rulings if found is not None)), None)

    def returned(self) -> None:
        """Tell every guard that the model was taken back."""
        for guard in self.states:
            guard.returned()

    def state_dict(self) -> dict[str, Any]:
        """What each remembers, by its number."""
        return {str(number): guard.state_dict() for number, guard in enumerate(self.states)}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError where a guard says that its part of ``state`` is not of its own form."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.states))])
        for number, guard in enumerate(self.states):
            validate_part(guard, found[str(number)], f"{path}/{number} ({type(guard).__name__.strip('_')})")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for number, guard in enumerate(self.states):
            guard.load_state_dict(state[str(number)])


def _written(ruling: Ruling) -> str | None:
    """A ruling as text, to be sent."""
    if ruling is None:
        return None
    if isinstance(ruling, Keep):
        return json.dumps({"keep": True})
    if isinstance(ruling, Rollback):
        return json.dumps({"reason": ruling.reason, "to": ruling.to})
    return json.dumps({"reason": ruling})


def _read(text: str | None) -> Ruling:
    said = {} if text is None else json.loads(text)
    if "to" in said:
        return Rollback(said["reason"], said["to"])
    reason: str | None = said.get("reason")
    return Keep() if "keep" in said else reason
