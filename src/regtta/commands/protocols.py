"""Enumerations of command-line choices."""

from enum import StrEnum


class Protocol(StrEnum):
    """Evaluation protocol: predictions made while adapting (online) or by the adapted model (offline)."""

    online = "online"
    offline = "offline"


class PrecisionName(StrEnum):
    """Precision of the forward passes, see :class:`regtta.Execution`."""

    float32 = "float32"
    tf32 = "tf32"
    bfloat16 = "bfloat16"
