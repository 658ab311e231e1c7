"""What an alarm tells: that it began, or that it is over."""

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Event:
    """An alarm that begins or ends.

    Attributes:
        kind: ``"raised"`` or ``"cleared"``.
        alarm: its name.
        index: of the batch.
        message: what was seen.
        action: what to do about it.
    """

    kind: Literal["raised", "cleared"]
    alarm: str
    index: int
    message: str
    action: str

    def plain(self) -> dict[str, object]:
        """The event in values that JSON has."""
        return asdict(self)
