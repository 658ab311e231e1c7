"""Events that alarms emit."""

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Event:
    """Event of an alarm that was raised or cleared.

    Attributes:
        kind: ``"raised"`` or ``"cleared"``.
        alarm: name of the alarm.
        index: index of the batch.
        message: description of the condition.
        action: recommended action; empty if the alarm was cleared.
    """

    kind: Literal["raised", "cleared"]
    alarm: str
    index: int
    message: str
    action: str

    def plain(self) -> dict[str, object]:
        """Return the event as values that JSON can represent."""
        return asdict(self)
