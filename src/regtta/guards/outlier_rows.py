"""The guard that leaves out single absurd samples: sentinels, unit errors, broken sensors."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regtta.guards.base import Exclusion, Guard, GuardContext, GuardState, IncomingBatch
from regtta.guards.batches import counted
from regtta.options import check_bool, check_not_negative, check_positive, check_share
from regtta.outliers import LEAST_ROWS, deviations, is_table
from regtta.statistics import SourceStatistics
from regtta.whitening import Whitening

_LEAST_NORM = 20.0  # times the source's mean squared norm: up to it nothing is beyond reason


@dataclass(frozen=True)
class OutlierRows(Guard):
    """Leaves out samples that lie beyond reason from the others of their batch.

    One sample a million times too large would move BatchNorm's running variance for a hundred batches. The decision is
    made before the pass that learns, since batch statistics spread an outlier over the features of every sample. It is
    made on the inputs: beyond reason is a number that is far from its column's median in the batch *and* much larger
    than anything in that column of the source's data (see :mod:`regtta.outliers`). So a stream that is shifted as a
    whole has no outliers. Where more than ``most`` of a batch lies that far out, it is a shift and no sample is left
    out. Not looked at are batches of fewer than 16 samples, whose own scale is too uncertain, and inputs of whole
    numbers, such as token ids.

    Args:
        factor: how many times the largest magnitude of the source's own samples is beyond reason; without statistics of
            the source any magnitude is.
        least: deviations from the batch's median up to this, in median deviations, are never beyond reason.
        most: share of a batch that may be left out.
        features: look at the features as well: ``‖y‖²`` in the source's whitened subspace, in the source model's pass
            in eval mode, against the largest of the source's samples and the median of the batch. Costs that pass
            where no other guard makes it.

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
        check_not_negative("least", self.least)
        check_share("most", self.most)
        check_bool("features", self.features)

    def start(self, context: GuardContext) -> GuardState:
        """Take the limits from the source's statistics, where there are any."""
        whitening = context.whitening("OutlierRows") if self.features else None
        return _OutlierScreen(self, context.source, whitening)

    def exclude_rows(self, batch: IncomingBatch) -> Exclusion | None:
        """Name the outliers of one batch by itself."""
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
        """Name the samples whose inputs, or features, are beyond reason."""
        if batch.size < LEAST_ROWS:
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
        """(B,) true for outliers, of all processes; ``None`` where there are none."""
        peaks = batch.peaks
        ranges = self.ranges if len(self.ranges) == len(peaks) else [0.0] * len(peaks)
        if all(peak <= known for peak, known in zip(peaks, ranges, strict=True)):
            return None
        columns = batch.columns()
        far = deviations(columns, table=is_table(batch.inputs)) > self.guard.least
        large = np.abs(columns) > np.array(ranges)[:, None]
        return torch.from_numpy((far & large).any(axis=0)).to(batch.inputs.device)

    def _by_features(self, batch: IncomingBatch, whitening: Whitening) -> Tensor:
        norms = batch.coordinates(whitening, batch.source).double().square().sum(dim=1)
        usual = (norms.nanmedian() / whitening.dimensions).clamp_min(1.0)
        return ~(norms <= self.feature_limit * usual)  # true where features are not finite, too
