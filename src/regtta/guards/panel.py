"""The watches of one stream, asked together."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from regtta.guards.base import Arrival, Guard, Keep, Outcome, Post, Rollback, Ruling
from regtta.processes import ALONE, Processes
from regtta.state_validation import require_mapping, validate_part


class Panel:
    """All guards of a stream as one.

    Args:
        guards: in the order in which they are asked.
        post: what they begin with.
        processes: that must all abide by what any of them refuses.
    """

    def __init__(self, guards: Sequence[Guard], post: Post, processes: Processes = ALONE) -> None:
        self.watches = [guard.start(post) for guard in guards]
        self._processes = processes

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
