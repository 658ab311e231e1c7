"""What a method gathers from the source beyond the moments."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from regtta.features import Forward


class Gatherer(ABC):
    """Looks at every batch of the source, in ``passes`` passes over it."""

    passes: int = 1

    @abstractmethod
    def see(self, forward: Forward, number: int) -> None:
        """Take in one batch of pass ``number``, counted from 0."""

    @abstractmethod
    def result(self) -> Mapping[str, Tensor]:
        """What to store with the statistics."""


class Stored(Gatherer):
    """Values known beforehand, stored as they are."""

    passes = 0

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values

    def see(self, forward: Forward, number: int) -> None:
        """Nothing: there is no pass."""

    def result(self) -> Mapping[str, Tensor]:
        """The values."""
        return self._values


class Gathers(Protocol):
    """A method that may gather."""

    def gatherers(self) -> Mapping[str, Gatherer]:
        """New gatherers, by the name that each is stored under; none where the moments are enough."""
