"""Moments of the source inputs by column, the covariance of a table's columns, and the names of the columns."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regtta.errors import MismatchError, OptionError
from regtta.execution import SINGLE_PROCESS, Communicator
from regtta.models import Inputs, input_tensors
from regtta.options import list_names
from regtta.statistics.moments import Moments, RunningMoments, all_reduce_moments, moments_device
from regtta.statistics.outliers import MAX_COLUMNS, count_columns

# Values that are converted to float64 at once, so that a batch of large images is never copied as a whole.
_BLOCK_VALUES, _BLOCK_VALUES_ON_GPU = 2**20, 2**25


def unknown_columns() -> Tensor:
    """Return the empty tensor (0,) that stands for values by column that are not known."""
    return torch.empty(0, dtype=torch.float64)


def unknown_covariance() -> Tensor:
    """Return the empty tensor (0, 0) that stands for a covariance that is not known."""
    return torch.empty(0, 0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Mean and variance of the values of each column of the inputs.

    Attributes:
        count: number of values of each column: samples, times positions for images and sequences; 0 if unknown.
        mean: (C,) float64 on the CPU; of shape (0,) if unknown.
        variance: (C,) float64, unbiased; of shape (0,) if unknown.

    Example:
        >>> halves = [InputMoments(), InputMoments()]
        >>> for half, rows in zip(halves, torch.tensor([[0.0], [2.0], [4.0], [6.0]]).split(2)):
        ...     half.update(rows)
        >>> first, second = (half.result() for half in halves)
        >>> whole = first.merge(second)
        >>> whole.count, whole.mean.item(), round(whole.variance.item(), 4)
        (4, 3.0, 6.6667)
    """

    count: int = 0
    mean: Tensor = field(default_factory=unknown_columns)
    variance: Tensor = field(default_factory=unknown_columns)

    def merge(self, other: "ColumnMoments") -> "ColumnMoments":
        """Return the moments of the values of both; unknown if one is unknown or their columns differ in number."""
        if not self.count or not other.count or len(self.mean) != len(other.mean):
            return ColumnMoments()
        count = self.count + other.count
        gap = other.mean - self.mean
        scatter = self.variance * (self.count - 1) + other.variance * (other.count - 1)
        scatter = scatter + gap.square() * (self.count * other.count / count)
        return _finite_moments(count, self.mean + gap * (other.count / count), scatter)


class InputMoments:
    """Running moments of each column of the source inputs in float64, without device synchronisation.

    Columns are those of :func:`column_values`, with all values of a channel in place of their largest magnitude. The
    moments are unknown unless exactly one tensor of the inputs is floating point, and if the number of columns changes.
    """

    def __init__(self) -> None:
        self._count = self._width = 0
        self._known, self._finished = True, False
        self._mean = self._scatter = unknown_columns()

    def update(self, inputs: Inputs) -> None:
        """Update with the inputs (B, ...) of a batch; does nothing after :meth:`finish`."""
        if self._finished or not self._known:
            return
        floating = [tensor for tensor in input_tensors(inputs) if tensor.is_floating_point()]
        width = count_columns(floating[0]) if len(floating) == 1 and floating[0].numel() else 0
        if width == 0 or self._width not in (0, width):
            self._known = False
            return
        rows = floating[0].detach()
        home = moments_device(rows.device)
        if self._width == 0:
            self._width = width
            self._mean = torch.zeros(width, dtype=torch.float64, device=home)
            self._scatter = torch.zeros_like(self._mean)
        most = _BLOCK_VALUES if home.type == "cpu" else _BLOCK_VALUES_ON_GPU
        for block in torch.split(rows, max(1, most // rows[0].numel())):
            self._add(block.reshape(len(block), width, -1).to(home, torch.float64))

    def finish(self) -> None:
        """End the first pass over the source: the batches of further passes are the same and are ignored."""
        self._finished = True

    def result(self) -> ColumnMoments:
        """Return the moments of all batches, on the CPU."""
        return self.all_reduce(SINGLE_PROCESS)

    def all_reduce(self, processes: Communicator) -> ColumnMoments:
        """Return the moments over all processes, identical in each; unknown if one process does not know its own.

        Each process corrects its sum of squares to the common mean, as for the moments of the features.
        """
        width = int(processes.reduce(torch.tensor(self._width), "max"))
        known = self._known and self._width in (0, width)
        known = not int(processes.reduce(torch.tensor(0 if known else 1), "max"))
        count = int(processes.reduce(torch.tensor(self._count)))
        if not known or count == 0:
            return ColumnMoments()
        nothing = torch.zeros(width, dtype=torch.float64)
        own, scatter = (self._mean.cpu(), self._scatter.cpu()) if self._width else (nothing, nothing)
        mean = processes.reduce(own * (self._count / count))
        scatter = processes.reduce(scatter + (own - mean).square() * self._count)
        return _finite_moments(count, mean, scatter)

    def _add(self, values: Tensor) -> None:
        """Add values (B, C, P) of P positions by the update of Chan, Golub and LeVeque."""
        added = values.shape[0] * values.shape[2]
        count = self._count + added
        mean = values.mean(dim=(0, 2))
        gap = mean - self._mean
        self._scatter += (values - mean[:, None]).square().sum(dim=(0, 2))
        self._scatter += gap.square() * (self._count * added / count)
        self._mean += gap * (added / count)
        self._count = count


class InputCovariance:
    """Running covariance of the columns of a table of source inputs (B, C), in float64.

    It is unknown for inputs that are not one table of numbers, and for more than 256 columns.
    """

    def __init__(self) -> None:
        self._running = RunningMoments()
        self._width = 0
        self._known, self._finished = True, False

    def update(self, inputs: Inputs) -> None:
        """Update with the inputs of a batch; does nothing after :meth:`finish`."""
        if self._finished or not self._known:
            return
        table = inputs if isinstance(inputs, Tensor) and inputs.ndim == 2 and inputs.is_floating_point() else None
        if table is None or not 2 <= table.shape[1] <= MAX_COLUMNS or self._width not in (0, table.shape[1]):
            self._known = False
            return
        self._width = table.shape[1]
        self._running.update(table)

    def finish(self) -> None:
        """End the first pass over the source: the batches of further passes are the same and are ignored."""
        self._finished = True

    def all_reduce(self, processes: Communicator, device: torch.device, variance: Tensor) -> Tensor:
        """Return the unbiased covariance (C, C) over all processes, on the CPU; of shape (0, 0) if it is unknown.

        Args:
            processes: the processes that collect together.
            device: device of this process.
            variance: (C,) variances of the columns, which become the diagonal.
        """
        own = self._running.finish() if self._known and self._width else None
        width = int(processes.reduce(torch.tensor(self._width), "max"))
        unknown = not self._known or self._width not in (0, width)
        if int(processes.reduce(torch.tensor(int(unknown)), "max")):
            return unknown_covariance()
        moments = all_reduce_moments(own, processes, device)
        if moments is None or moments.count < 2 or not bool(moments.scatter.isfinite().all()):
            return unknown_covariance()
        return _with_variances(moments.covariance().cpu(), variance)


def merge_covariances(one: tuple[ColumnMoments, Tensor], other: tuple[ColumnMoments, Tensor]) -> Tensor:
    """Return the covariance (C, C) of the inputs of two sets of samples; of shape (0, 0) if one is unknown."""
    sides = [
        Moments(moments.count, moments.mean, covariance * (moments.count - 1))
        for moments, covariance in (one, other)
        if len(covariance) and len(covariance) == len(moments.mean)
    ]
    if len(sides) < 2 or len(sides[0].mean) != len(sides[1].mean):
        return unknown_covariance()
    variance = one[0].merge(other[0]).variance
    return _with_variances(sides[0].merge(sides[1]).covariance(), variance)


def _with_variances(covariance: Tensor, variance: Tensor) -> Tensor:
    """Return ``covariance`` (C, C), symmetric and with the diagonal ``variance`` (C,) in spite of rounding errors."""
    if len(covariance) != len(variance):
        return unknown_covariance()
    bound = torch.outer(variance.sqrt(), variance.sqrt())
    exact = torch.minimum(torch.maximum((covariance + covariance.T) / 2, -bound), bound)
    exact.diagonal().copy_(variance)
    return exact


def _finite_moments(count: int, mean: Tensor, scatter: Tensor) -> ColumnMoments:
    """Return the moments, unknown for fewer than two values or where inputs are not finite."""
    if count < 2 or not bool((mean.isfinite() & scatter.isfinite()).all()):
        return ColumnMoments()
    return ColumnMoments(count, mean, scatter / (count - 1))


def check_column_names(columns: object) -> tuple[str, ...]:
    """Return the names of input columns as a tuple; raise an OptionError unless they are distinct strings.

    Example:
        >>> check_column_names(["age", "height"]), check_column_names(None)
        (('age', 'height'), ())
    """
    if columns is None:
        return ()
    names = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        wrong = columns if names is None else next(name for name in names if not isinstance(name, str))
        raise OptionError(f'Expected columns to be a list of names such as ["age", "height"], found {wrong!r}.')
    twice = find_duplicate(names)
    if twice is not None:
        raise OptionError(f"Expected each column to be named once, found {twice!r} twice. Rename one of them.")
    return names


def check_column_count(columns: tuple[str, ...], inputs: Inputs) -> None:
    """Raise an OptionError unless ``columns`` is empty or names the columns of the inputs (B, C)."""
    is_table = isinstance(inputs, Tensor) and inputs.ndim == 2
    if columns and not (is_table and inputs.shape[1] == len(columns)):
        raise OptionError(
            f"Expected columns to name each column of a table of inputs (B, C), found {len(columns)} "
            f"({list_names(columns)}) and inputs of shape {tuple(inputs.shape)}. Pass one name per column, in order, "
            "or leave columns out."
        )


def find_duplicate(names: tuple[str, ...]) -> str | None:
    """Return a name that occurs more than once; ``None`` if all differ."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def merge_column_names(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, which must be equal unless one has none; raise a MismatchError otherwise."""
    if one and other and one != other:
        raise MismatchError(
            f"These statistics are of other input columns: expected {list_names(one)}, found {list_names(other)}. "
            "Collect both with the same columns in the same order."
        )
    return one or other
