"""Choices that are made by name on the command line."""

from enum import StrEnum


class Protocol(StrEnum):
    """Which predictions count: those made while adapting, or those of the adapted model."""

    online = "online"
    offline = "offline"


class PrecisionName(StrEnum):
    """The arithmetic of the model's passes, as :class:`regtta.Execution` has it."""

    float32 = "float32"
    tf32 = "tf32"
    bfloat16 = "bfloat16"
