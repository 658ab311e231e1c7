"""The guard that leaves out single absurd samples: sentinels, unit errors, broken sensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.guards.base import Arrival, Exclusion, Guard, Post, Watch
from regtta.guards.batches import counted
from regtta.options import check_bool, check_not_negative, check_positive, check_share
from regtta.outliers import LEAST_ROWS, is_table, outlier_scores
from regtta.statistics import SourceStatistics
from regtta.whitening import Whitening

_NORM_WITHOUT_RECORD = 20.0  # times the mean squared norm, for statistics that hold no largest one


@dataclass(frozen=True)
class OutlierRows(Guard):
    """Leaves out samples that lie beyond reason from the others of their batch.

    One sample a million times too large would move BatchNorm's running variance for a hundred batches. The decision is
    made before the pass that learns, since batch statistics spread an outlier over the features of every sample. It is
    made on the inputs, whose :func:`scores <regtta.outliers.outlier_scores>` are relative to the batch, so that a
    stream which is shifted as a whole has none. Where more than ``most`` of a batch lies that far out, it is a shift
    and no sample is left out. Not looked at are batches of fewer than 16 samples, whose own scale is too uncertain, and
    inputs of whole numbers, such as token ids.

    Args:
        factor: how many times the largest score of the source's own samples is beyond reason.
        least: scores up to this, in median deviations, are never beyond reason.
        most: share of a batch that may be left out.
        features: look at the features as well: ``‖y‖²`` in the source's whitened subspace, in the source model's pass
            in eval mode, against the largest of the source's samples and the median of the batch. Costs that pass
            where no other guard makes it.

    Example:
        >>> x = torch.arange(40.0)[:, None]
        >>> x[7] = 1e6
        >>> exclusion = OutlierRows().exclude_rows(Arrival(x, lambda *_: None))
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

    def start(self, post: Post) -> Watch:
        """Take the limits from the source's statistics, where there are any."""
        whitening = post.whitening("OutlierRows") if self.features else None
        return _OutlierScreen(self, post.source, whitening)

    def exclude_rows(self, arrival: Arrival) -> Exclusion | None:
        """Name the outliers of one batch by itself."""
        return _OutlierScreen(self, None, None).exclude_rows(arrival)


class _OutlierScreen(Watch):
    def __init__(self, guard: OutlierRows, source: SourceStatistics | None, whitening: Whitening | None) -> None:
        self.guard = guard
        self.whitening = whitening
        largest = 0.0 if source is None else source.largest_input_score
        self.input_limit = max(guard.least, guard.factor * largest)
        self.feature_limit = 0.0
        if source is not None and whitening is not None:
            usual = _NORM_WITHOUT_RECORD * whitening.dimensions
            self.feature_limit = max(usual, guard.factor**2 * source.largest_feature_norm)

    def exclude_rows(self, arrival: Arrival) -> Exclusion | None:
        """Name the samples whose inputs, or features, are beyond reason."""
        if arrival.size < LEAST_ROWS:
            return None
        rows = self._by_inputs(arrival)
        if self.whitening is not None:
            by_features = self._by_features(arrival, self.whitening)
            rows = by_features if rows is None else rows | by_features
        found = 0 if rows is None else int(rows.sum())
        if rows is None or not 0 < found <= self.guard.most * arrival.size:
            return None
        reason = counted(found, arrival.size, "an outlier" if found == 1 else "outliers")
        return Exclusion(arrival.processes.own(rows, arrival.counts), reason)

    def _by_inputs(self, arrival: Arrival) -> Tensor | None:
        """(B,) true for outliers, of all processes; ``None`` where there are none."""
        columns = arrival.columns
        if columns is None or arrival.largest_score <= self.input_limit:
            return None
        scores = outlier_scores(columns, table=is_table(arrival.inputs))
        return torch.from_numpy(scores > self.input_limit).to(arrival.inputs.device)

    def _by_features(self, arrival: Arrival, whitening: Whitening) -> Tensor:
        norms = arrival.coordinates(whitening, arrival.source).double().square().sum(dim=1)
        usual = (norms.median() / whitening.dimensions).clamp_min(1.0)
        return norms > self.feature_limit * usual
