"""Guards on the inputs of a batch: non-finite samples, outliers, too few samples, constant inputs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from regtta.guards.base import Exclusion, Guard, GuardContext, GuardState
from regtta.guards.chain import IncomingBatch
from regtta.options import check_bool, check_fraction, check_non_negative, check_positive, check_positive_int
from regtta.statistics import MIN_ROWS, SourceStatistics, Whitening, deviations, is_table


@dataclass(frozen=True)
class FiniteInputs(Guard):
    """Guard that excludes samples with NaN or infinite values.

    Example:
        >>> from torch import tensor
        >>> batch = IncomingBatch(tensor([[1.0], [float("nan")]]), lambda *_: None)
        >>> FiniteInputs().exclude_rows(batch)
        Exclusion(rows=tensor([False,  True]), reason='1 of 2 samples is not finite')
    """

    def exclude_rows(self, batch: IncomingBatch) -> Exclusion | None:
        """Return the samples that are not finite."""
        rows = batch.not_finite
        if rows is None:
            return None
        return Exclusion(rows, counted(int(batch.processes.reduce(rows.sum())), batch.size, "not finite"))


@dataclass(frozen=True)
class MinBatchSize(Guard):
    """Guard that rejects batches of too few samples.

    Args:
        least: smallest batch size; ``None`` for 2, since a single sample has no variance. For methods that keep a
            window of past samples, the smallest batch size is 1.
    """

    least: int | None = None

    serialized_name: ClassVar[str] = "SeveralSamples"

    def __post_init__(self) -> None:
        """Validate fields."""
        if self.least is not None:
            check_positive_int("least", self.least)

    def start(self, context: GuardContext) -> GuardState:
        """Return the guard with the smallest batch size of the method, which is 1 if the method keeps a window."""
        return self if self.least is not None and context.min_batch_size > 1 else MinBatchSize(context.min_batch_size)

    def before_step(self, batch: IncomingBatch) -> str | None:
        """Reject the batch if it has too few samples."""
        found, least = batch.size, 2 if self.least is None else self.least
        if found >= least:
            return None
        return f"a batch of {found} has no variance" if found < 2 else f"a batch of {found} is fewer than {least}"


@dataclass(frozen=True)
class NonConstantInputs(Guard):
    """Guard that rejects batches of two or more samples that are all equal."""

    serialized_name: ClassVar[str] = "VariedInputs"
    unusable: ClassVar[bool] = True

    def before_step(self, batch: IncomingBatch) -> str | None:
        """Reject the batch if all samples equal the first."""
        return "all samples are the same" if batch.size > 1 and not batch.varied else None


def counted(found: int, size: int, what: str) -> str:
    """Return a description of the number of samples of a batch that are ``what``.

    Example:
        >>> counted(1, 8, "not finite")
        '1 of 8 samples is not finite'
    """
    return f"{found} of {size} samples {'is' if found == 1 else 'are'} {what}"


_LEAST_NORM = 20.0  # multiple of the source's mean squared norm up to which no sample is an outlier


@dataclass(frozen=True)
class OutlierRows(Guard):
    """Guard that excludes extreme outliers of a batch.

    A sample that is a million times too large would distort BatchNorm's running variance for a hundred batches.
    Outliers are detected before the forward pass that learns, since batch statistics spread them over the features of
    all samples. A sample is an outlier if one of its input values is far from the median of its column in the batch
    *and* much larger than all values of that column in the source data. A stream that is
    shifted as a whole therefore has no outliers. If more than a share of ``most`` of a batch is affected, this is
    treated as a shift and nothing is excluded. Batches of fewer than 16 samples, whose scale is too uncertain, and
    integer inputs, such as token ids, are not screened.

    Args:
        factor: multiple of the largest magnitude in the source data above which a value may be an outlier; without
            source statistics, values of any magnitude may be.
        least: deviation from the batch median, in median absolute deviations, up to which a value is no outlier.
        most: largest share of a batch that may be excluded.
        features: screen the features as well, by ``‖y‖²`` in the whitened source subspace, relative to the largest
            source sample and to the batch median. Requires a forward pass of the source model in eval mode, unless
            another guard has computed it.

    Example:
        >>> x = torch.arange(40.0)[:, None]
        >>> x[7] = 1e6
        >>> exclusion = OutlierRows().exclude_rows(IncomingBatch(x, lambda *_: None))
        >>> exclusion.reason, exclusion.rows.nonzero().item()
        ('1 of 40 samples is an outlier', 7)
    """

    factor: float = 2.0
    least: float = 100.0
    most: float = 0.25
    features: bool = False

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("factor", self.factor)
        check_non_negative("least", self.least)
        check_fraction("most", self.most)
        check_bool("features", self.features)

    def start(self, context: GuardContext) -> GuardState:
        """Return a state with the limits of the source statistics, if there are any."""
        whitening = context.whitening("OutlierRows") if self.features else None
        return _OutlierScreen(self, context.source, whitening)

    def exclude_rows(self, batch: IncomingBatch) -> Exclusion | None:
        """Return the outliers of a single batch, without source statistics."""
        return _OutlierScreen(self, None, None).exclude_rows(batch)


class _OutlierScreen(GuardState):
    def __init__(self, guard: OutlierRows, source: SourceStatistics | None, whitening: Whitening | None) -> None:
        self.guard = guard
        self.whitening = whitening
        self.ranges = [] if source is None else (guard.factor * source.input_ranges).tolist()
        self.feature_limit = 0.0
        if source is not None and whitening is not None:
            least = _LEAST_NORM * whitening.dimensions
            self.feature_limit = max(least, guard.factor**2 * source.largest_feature_norm)

    def exclude_rows(self, batch: IncomingBatch) -> Exclusion | None:
        """Return the samples whose inputs or features are outliers."""
        if batch.size < MIN_ROWS:
            return None
        rows = self._by_inputs(batch)
        if self.whitening is not None:
            by_features = self._by_features(batch, self.whitening)
            rows = by_features if rows is None else rows | by_features
        found = 0 if rows is None else int(rows.sum())
        if rows is None or not 0 < found <= self.guard.most * batch.size:
            return None
        reason = counted(found, batch.size, "an outlier" if found == 1 else "outliers")
        return Exclusion(batch.processes.own(rows, batch.counts), reason)

    def _by_inputs(self, batch: IncomingBatch) -> Tensor | None:
        """Return the mask ``(B,)`` of outliers over all processes, or ``None`` if there are none."""
        peaks = batch.peaks
        ranges = self.ranges if len(self.ranges) == len(peaks) else [0.0] * len(peaks)
        if all(peak <= known for peak, known in zip(peaks, ranges, strict=True)):
            return None
        columns = batch.columns()
        far = deviations(columns, table=all(map(is_table, batch.tensors))) > self.guard.least
        large = np.abs(columns) > np.array(ranges)[:, None]
        return torch.from_numpy((far & large).any(axis=0)).to(batch.inputs.device)

    def _by_features(self, batch: IncomingBatch, whitening: Whitening) -> Tensor:
        norms = batch.coordinates(whitening, batch.source).double().square().sum(dim=1)
        norms = norms.reshape(batch.size, -1).amax(dim=1)  # the furthest step of a sequence
        usual = (norms.nanmedian() / whitening.dimensions).clamp_min(1.0)
        return ~(norms <= self.feature_limit * usual)  # also True for features that are not finite
