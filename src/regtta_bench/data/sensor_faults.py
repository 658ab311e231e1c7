"""Simulated faults of sensors: drift, dropout and noise in every third column of standardised inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

COLUMN_STEP = 3  # every third column is faulty
_NOISE_SEED = 0  # fixed, so that the noise does not depend on the source model


@dataclass(frozen=True)
class SensorFault:
    """Fault of every third column of a table.

    With x a column in standard deviations of the source, the faulty column is ``gain · x + offset`` (drift), the
    minimum of the column on the source (dropout), or ``x + sd · ε`` with ``ε ~ N(0, 1)`` (noise).

    Attributes:
        kind: ``"drift"``, ``"dropout"`` or ``"noise"``.
        first_column: index of the first faulty column.
        gain: factor of a drift.
        offset: offset of a drift, in standard deviations.
        sd: standard deviation of the noise, in standard deviations of the column.
    """

    kind: Literal["drift", "dropout", "noise"]
    first_column: int = 0
    gain: float = 1.0
    offset: float = 0.0
    sd: float = 0.0

    def apply(self, inputs: Tensor, source: Tensor) -> Tensor:
        """Return a copy of ``inputs`` ``(N, D)`` with the faulty columns changed.

        Args:
            inputs: standardised inputs.
            source: standardised inputs ``(M, D)`` that the model was trained on.

        Example:
            >>> SensorFault("drift", first_column=1, gain=2.0, offset=0.5).apply(torch.ones(1, 5), torch.zeros(3, 5))
            tensor([[1.0000, 2.5000, 1.0000, 1.0000, 2.5000]])
        """
        columns = torch.arange(self.first_column, inputs.shape[1], COLUMN_STEP)
        faulty = inputs.clone()
        if self.kind == "drift":
            faulty[:, columns] = self.gain * inputs[:, columns] + self.offset
        elif self.kind == "dropout":
            faulty[:, columns] = source[:, columns].amin(dim=0)
        else:
            generator = torch.Generator().manual_seed(_NOISE_SEED)
            noise = torch.randn(len(inputs), len(columns), generator=generator, dtype=inputs.dtype)
            faulty[:, columns] += self.sd * noise
        return faulty


# Names of target domains. The first three concern columns 0, 3, 6, …, the others columns 1, 4, 7, ….
SENSOR_FAULTS: Mapping[str, SensorFault] = MappingProxyType(
    {
        "drift": SensorFault("drift", gain=1.4, offset=0.8),
        "dropout": SensorFault("dropout"),
        "noise": SensorFault("noise", sd=1.0),
        "weak_drift": SensorFault("drift", first_column=1, gain=1.2, offset=0.4),
        "strong_drift": SensorFault("drift", first_column=1, gain=1.8, offset=1.6),
        "other_dropout": SensorFault("dropout", first_column=1),
        "weak_noise": SensorFault("noise", first_column=1, sd=0.5),
    }
)
