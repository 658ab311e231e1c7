"""Interface for collecting additional source statistics beyond the feature moments."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from regtta.errors import ProcessError
from regtta.execution import Communicator
from regtta.models import Forward


class Gatherer(ABC):
    """Streaming accumulator of source statistics, updated with every batch in ``passes`` passes over the source."""

    passes: int = 1

    @abstractmethod
    def see(self, forward: Forward, number: int) -> None:
        """Update with one batch of pass ``number``, counted from 0."""

    def merge(self, processes: Communicator, number: int) -> None:  # noqa: B027 - a single process has nothing to merge
        """Merge the results of pass ``number`` across processes, so that all hold the same; called after each pass.

        A process that received no batch must take part in every exchange as well.
        """

    def check(self, processes: Communicator) -> None:
        """Raise a ProcessError if there are several processes and the class does not implement :meth:`merge`."""
        if processes.size > 1 and type(self).merge is Gatherer.merge:
            raise ProcessError(
                f"{type(self).__name__} cannot be gathered by several processes: it has no merge(processes, number). "
                "Implement it, or collect in one process."
            )

    @abstractmethod
    def result(self) -> Mapping[str, Tensor]:
        """Return the tensors to store with the statistics, by name."""


class Stored(Gatherer):
    """Gatherer of constant tensors that need no pass over the source."""

    passes = 0

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values

    def see(self, forward: Forward, number: int) -> None:
        """Do nothing: there is no pass."""

    def merge(self, processes: Communicator, number: int) -> None:
        """Do nothing: the values are the same in all processes."""

    def result(self) -> Mapping[str, Tensor]:
        """Return the constant tensors."""
        return self._values


class Gathers(Protocol):
    """Protocol of methods that may need additional source statistics."""

    def gatherers(self) -> Mapping[str, Gatherer]:
        """Return new gatherers by the name they are stored under; empty if the moments suffice."""
