"""The watches of one stream, asked together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regtta.guards.base import Arrival, Guard, Keep, Outcome, Post, Rollback, Ruling, Watch
from regtta.processes import ALONE, Processes
from regtta.state_validation import require_mapping, validate_part


@dataclass(frozen=True)
class Screened:
    """A batch less the samples that guards left out.

    Attributes:
        arrival: the batch to learn from.
        size: how many samples this process was given.
        kept: indices of those to learn from; ``None`` where no process left one out.
        reasons: why others were left out.
    """

    arrival: Arrival
    size: int
    kept: Tensor | None = None
    reasons: tuple[str, ...] = ()

    @property
    def nothing_left(self) -> bool:
        """Whether every sample of every process was left out."""
        return bool(self.reasons) and self.arrival.size == 0

    @property
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


class Panel:
    """All guards of a stream as one.

    Args:
        guards: in the order in which they are asked.
        post: what they begin with.
        processes: that must all abide by what any of them refuses.
    """

    def __init__(self, guards: Sequence[Guard], post: Post, processes: Processes = ALONE) -> None:
        self.watches = [guard.start(post) for guard in guards]
        self._excluding = [watch for watch in self.watches if type(watch).exclude_rows is not Watch.exclude_rows]
        self._processes = processes

    def screen(self, arrival: Arrival) -> Screened:
        """Leave out the samples that any watch names; each sees what the ones before it left."""
        screened = Screened(arrival, len(arrival.inputs))
        for watch in self._excluding:
            exclusion = watch.exclude_rows(screened.arrival)
            if exclusion is not None:
                rows, kept = exclusion.rows, screened.kept
                kept = torch.arange(len(rows), device=rows.device) if kept is None else kept
                reasons = (*screened.reasons, exclusion.reason)
                screened = Screened(screened.arrival.without(rows), screened.size, kept[~rows], reasons)
        return screened

    def admits(self, arrival: Arrival) -> Ruling:
        """Ask every watch, for each has its memory to keep; an order to go back outweighs a mere no."""
        refusals: list[str | Rollback] = []
        for watch in self.watches:
            ruling = watch.admits(arrival)
            if isinstance(ruling, str | Rollback):
                refusals.append(ruling)
                if watch.unusable:
                    break
        orders = [ruling for ruling in refusals if isinstance(ruling, Rollback)]
        return self._agreed(next(iter(orders or refusals), None))

    def judge(self, outcome: Outcome) -> Ruling:
        """Ask in turn: the first refusal stands, and those after it have no step to judge."""
        keep: Keep | None = None
        for watch in self.watches:
            ruling = watch.judge(outcome)
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
        """Tell every watch that the model was taken back."""
        for watch in self.watches:
            watch.returned()

    def state_dict(self) -> dict[str, Any]:
        """What each remembers, by its number."""
        return {str(number): watch.state_dict() for number, watch in enumerate(self.watches)}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError where a watch says that its part of ``state`` is not of its own form."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.watches))])
        for number, watch in enumerate(self.watches):
            validate_part(watch, found[str(number)], f"{path}/{number} ({type(watch).__name__.strip('_')})")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for number, watch in enumerate(self.watches):
            watch.load_state_dict(state[str(number)])


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
