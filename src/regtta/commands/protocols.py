"""The two ways of adapting to a set of data."""

from enum import StrEnum


class Protocol(StrEnum):
    """Which predictions count: those made while adapting, or those of the adapted model."""

    online = "online"
    offline = "offline"
