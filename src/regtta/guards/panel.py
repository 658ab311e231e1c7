"""The watches of one stream, asked together."""

from collections.abc import Mapping, Sequence
from typing import Any

from regtta.guards.base import Arrival, Guard, Keep, Outcome, Post, Rollback, Ruling


class Panel:
    """All guards of a stream as one.

    Args:
        guards: in the order in which they are asked.
        post: what they begin with.
    """

    def __init__(self, guards: Sequence[Guard], post: Post) -> None:
        self.watches = [guard.start(post) for guard in guards]

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
        return next(iter(orders or refusals), None)

    def judge(self, outcome: Outcome) -> Ruling:
        """Ask in turn: the first refusal stands, and those after it have no step to judge."""
        keep: Keep | None = None
        for watch in self.watches:
            ruling = watch.judge(outcome)
            if isinstance(ruling, str | Rollback):
                return ruling
            keep = ruling or keep
        return keep

    def returned(self) -> None:
        """Tell every watch that the model was taken back."""
        for watch in self.watches:
            watch.returned()

    def state_dict(self) -> dict[str, Any]:
        """What each remembers, by its number."""
        return {str(number): watch.state_dict() for number, watch in enumerate(self.watches)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for number, watch in enumerate(self.watches):
            watch.load_state_dict(state[str(number)])
