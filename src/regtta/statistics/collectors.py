"""Interface for collecting additional source statistics beyond the feature moments."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor, nn

from regtta.errors import ProcessError
from regtta.execution import Communicator
from regtta.models import Forward


class StatisticsCollector(ABC):
    """Streaming accumulator of source statistics, updated with every batch in ``passes`` passes over the source."""

    passes: int = 1

    def recording(self, model: nn.Module) -> AbstractContextManager[object]:  # noqa: ARG002 - most record nothing
        """Return a reusable context manager around each forward pass of ``model``, to record outputs of its layers.

        It does nothing by default. What it recorded is read in :meth:`update`.
        """
        return nullcontext()

    @abstractmethod
    def update(self, forward: Forward, pass_index: int) -> None:
        """Update with one batch of pass ``pass_index``, counted from 0."""

    def merge(self, processes: Communicator, pass_index: int) -> None:  # noqa: B027 - a single process has nothing to merge
        """Merge the results of pass ``pass_index`` across processes, so that all hold the same; called after each pass.

        A process that received no batch must take part in every exchange as well.
        """

    def check(self, processes: Communicator) -> None:
        """Raise a ProcessError if there are several processes and the class does not implement :meth:`merge`."""
        if processes.size > 1 and type(self).merge is StatisticsCollector.merge:
            raise ProcessError(
                f"{type(self).__name__} cannot be collected by several processes: it has no "
                "merge(processes, pass_index). Implement it, or collect in one process."
            )

    @abstractmethod
    def result(self) -> Mapping[str, Tensor]:
        """Return the tensors to store with the statistics, by name."""


class ConstantStatistics(StatisticsCollector):
    """StatisticsCollector of constant tensors that need no pass over the source."""

    passes = 0

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values

    def update(self, forward: Forward, pass_index: int) -> None:
        """Do nothing: there is no pass."""

    def merge(self, processes: Communicator, pass_index: int) -> None:
        """Do nothing: the values are the same in all processes."""

    def result(self) -> Mapping[str, Tensor]:
        """Return the constant tensors."""
        return self._values


class HasCollectors(Protocol):
    """Protocol of methods that may need additional source statistics."""

    def statistics_collectors(self) -> Mapping[str, StatisticsCollector]:
        """Return new collectors by the name they are stored under; empty if the moments suffice."""
