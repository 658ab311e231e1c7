"""What a method gathers from the source beyond the moments."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from regtta.errors import ProcessError
from regtta.features import Forward
from regtta.processes import Processes


class Gatherer(ABC):
    """Looks at every batch of the source, in ``passes`` passes over it."""

    passes: int = 1

    @abstractmethod
    def see(self, forward: Forward, number: int) -> None:
        """Take in one batch of pass ``number``, counted from 0."""

    def merge(self, processes: Processes, number: int) -> None:  # noqa: B027 - one process has nothing to merge
        """Make what pass ``number`` gathered that of all processes, the same in each; called after each pass.

        One that saw no batch takes part in every exchange as well.
        """

    def check(self, processes: Processes) -> None:
        """Raise where several processes are to gather what does not say how it is merged."""
        if processes.size > 1 and type(self).merge is Gatherer.merge:
            raise ProcessError(
                f"{type(self).__name__} cannot be gathered by several processes: it has no merge(processes, number). "
                "Write one, or collect in one process."
            )

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

    def merge(self, processes: Processes, number: int) -> None:
        """Nothing: all know them."""

    def result(self) -> Mapping[str, Tensor]:
        """The values."""
        return self._values


class Gathers(Protocol):
    """A method that may gather."""

    def gatherers(self) -> Mapping[str, Gatherer]:
        """New gatherers, by the name that each is stored under; none where the moments are enough."""
