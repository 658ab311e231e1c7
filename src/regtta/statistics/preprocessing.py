"""Comparison of the inputs of a batch with those of the source, to find preprocessing that differs.

Only differences that no ordinary shift makes are reported: values far outside the range of the source, the moments of a
common normalisation that is missing, or that the source lacks, and columns whose moments are those of other columns.
Changes of brightness, contrast or location of a few standard deviations are what adaptation is for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.models import Inputs, input_tensors
from regtta.statistics.outliers import MIN_ROWS, count_columns
from regtta.statistics.source import SourceStatistics

_TOO_LARGE = 2.0  # root mean square of at least half of the columns, in units of the largest magnitude in the source
_FAR_TOO_LARGE = 10.0  # the same for single columns: a month, a count or a rare event moves as far as 8
_TOO_SMALL = 0.05  # largest magnitude of a batch, in units of the root mean square of the source
_MISMATCH = 1.5  # distance from the source that a missing normalisation must explain
_FIT = 1.0  # distance that may remain once the normalisation is applied or removed, on average over the columns
_SWAPPED, _SAME = 3.0, 1.0  # distances of a swapped column from its own and from another column of the source
_NAMED = 3  # columns that a message names

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALF = ((0.5,), (0.5,))
_FIX = "Preprocess the data as the source data was."


@dataclass(frozen=True)
class _Columns:
    """Moments and extremes of the columns of some inputs, each ``(C,)``."""

    mean: Tensor
    deviation: Tensor
    smallest: Tensor
    largest: Tensor

    @property
    def size(self) -> Tensor:
        """Root mean square."""
        return (self.mean.square() + self.deviation.square()).sqrt()

    @property
    def magnitude(self) -> Tensor:
        """Largest absolute value."""
        return torch.maximum(self.smallest.abs(), self.largest.abs())

    def distance(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return ``|μ₁ − μ₂| / max(σ₁, σ₂) + |ln(σ₁ / σ₂)|`` to other moments, which broadcast."""
        floor = 1e-9 * (self.mean.abs() + mean.abs()) + 1e-30
        own, other = torch.maximum(self.deviation, floor), torch.maximum(deviation, floor)
        return (self.mean - mean).abs() / torch.maximum(own, other) + (own / other).log().abs()


def describe_preprocessing(inputs: Inputs, source: SourceStatistics) -> str | None:
    """Return a warning if the inputs of a batch seem to be preprocessed differently from the source's.

    Args:
        inputs: a batch ``(B, ...)``; samples that are not finite are ignored.
        source: source statistics with the moments of the inputs.

    Returns:
        The warning, which names columns or channels with both means; an empty text if nothing is wrong; ``None`` if
        there is nothing to compare: the inputs or their moments are unknown, or the number of columns differs.

    Example:
        >>> import regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        >>> source = regtta.collect(net, torch.rand(64, 2).split(32))
        >>> describe_preprocessing(torch.rand(32, 2) * 0.3, source)
        ''
        >>> describe_preprocessing(torch.rand(32, 2) * 255, source)[:61]
        'The inputs are on a larger scale than those of the source: co'
    """
    floating = [tensor for tensor in input_tensors(inputs) if tensor.is_floating_point()]
    if len(floating) != 1 or not floating[0].numel() or count_columns(floating[0]) != len(source.input_mean):
        return None
    rows = floating[0].detach()
    rows = rows[rows.flatten(1).isfinite().all(dim=1)] if rows.ndim > 1 else rows[rows.isfinite()]
    if not len(rows):
        return None
    comparison = _Comparison(rows, source)
    return comparison.reordered() or comparison.normalised() or comparison.scaled()


class _Comparison:
    def __init__(self, rows: Tensor, source: SourceStatistics) -> None:
        values = rows.reshape(len(rows), len(source.input_mean), -1).double().cpu()
        self.batch = _Columns(
            values.mean(dim=(0, 2)),
            values.std(dim=(0, 2), correction=0),
            values.amin(dim=(0, 2)),
            values.amax(dim=(0, 2)),
        )
        self.mean, self.deviation = source.input_mean, source.input_variance.sqrt()
        known = len(source.input_ranges) == len(self.mean)
        self.range = source.input_ranges if known else self.mean.abs() + 6 * self.deviation
        self.is_table = rows.ndim == 2
        self.names = source.columns
        self.certain = len(rows) >= MIN_ROWS  # moments of fewer samples are too uncertain

    def reordered(self) -> str:
        """Return a warning if columns have the moments of other columns of the source, and these of others again."""
        batch, width = self.batch, len(self.mean)
        if not self.certain or width < 2:
            return ""
        every = _Columns(*(values[:, None] for values in (batch.mean, batch.deviation, batch.smallest, batch.largest)))
        distances = every.distance(self.mean, self.deviation)  # of each column of the batch to each of the source
        # Constant columns resemble each other whatever they mean.
        strange = (distances.diagonal() > _SWAPPED) & (batch.deviation > 0) & (self.deviation > 0)
        candidates = distances.masked_fill(~strange[None, :], torch.inf)
        nearest = candidates.argmin(dim=1)
        swapped = [i for i in range(width) if strange[i] and candidates[i, nearest[i]] < _SAME]
        if len({int(nearest[i]) for i in swapped}) < 2 or 2 * len(swapped) < int(strange.sum()):
            return ""
        listed = ", ".join(
            f"{self._name(i)} with mean {batch.mean[i]:.3g} (source: {self.mean[i]:.3g}) resembles {self._name(j)} of "
            f"the source ({self.mean[j]:.3g})"
            for i, j in ((i, int(nearest[i])) for i in swapped[:_NAMED])
        )
        return f"The inputs seem to be in another order than those of the source: {listed}. Restore the order."

    def normalised(self) -> str:
        """Return a warning if a normalisation that is missing, or that the source lacks, explains the moments."""
        batch, own = self.batch, self.batch.distance(self.mean, self.deviation)
        if not self.certain or float(own.min()) < _MISMATCH / 3 or float(own.mean()) < 0.7 * _MISMATCH:
            return ""
        inside = bool((batch.smallest >= 0).all() and (batch.largest <= 1).all())
        centred = bool((self.mean.abs() < 0.6 * self.deviation).all() and (self.deviation < 2).all())
        if inside and centred and bool(((self.deviation > 0.5) & (self.range > 1.5)).all()):
            return self._message("not normalised, with all values between 0 and 1", range(len(own)))
        negative = bool((self.mean < 0.3 * self.deviation).all())  # images from 0 to 1 are not
        # All columns of a table, or images with negative values, may have drifted to mean 0 and variance 1.
        drifted = float(own.mean()) < 2 * _MISMATCH or len(own) == 1 if self.is_table else negative
        limit = min(_FIT, float(own.mean()) / 3)
        for mean, deviation in self._normalisations():
            without = batch.distance((self.mean - mean) / deviation, self.deviation / deviation)
            if float(without.mean()) < limit and not drifted:
                return self._message("normalised, and those of the source are not", range(len(own)))
            applied = batch.distance(self.mean * deviation + mean, self.deviation * deviation)
            if float(applied.mean()) < limit and negative and mean is not self.mean:
                return self._message("not normalised", range(len(own)))
        return ""

    def _normalisations(self) -> list[tuple[Tensor, Tensor]]:
        """Return mean and standard deviation of common normalisations, and those of the source itself."""
        known = [(self.mean, self.deviation.clamp_min(1e-30))]
        if not self.is_table:
            for mean, deviation in (_IMAGENET, _HALF):
                if len(mean) in (1, len(self.mean)):
                    known.append((self.mean.new_tensor(mean), self.mean.new_tensor(deviation)))
        return known

    def scaled(self) -> str:
        """Return a warning if columns are far outside the range of the source, or far smaller."""
        batch = self.batch
        size = (self.mean.square() + self.deviation.square()).sqrt()
        varied = self.deviation > 1e-9 * self.mean.abs()
        large = varied & (batch.size > _TOO_LARGE * self.range)
        if 2 * int(large.sum()) < int(varied.sum()):
            large &= (batch.size > _FAR_TOO_LARGE * self.range) & self.certain
        small = varied & (batch.deviation > 0) & (batch.magnitude < _TOO_SMALL * size)
        small &= (batch.deviation < _TOO_SMALL * self.deviation) & (self.certain or not self.is_table)
        for columns, kind in ((large, "larger"), (small, "smaller")):
            if bool(columns.any()):
                found = columns.nonzero().flatten().tolist()
                return self._message(f"on a {kind} scale than those of the source", found)
        return ""

    def _message(self, problem: str, columns: Sequence[int]) -> str:
        listed = ", ".join(
            f"{self._name(i)} has mean {self.batch.mean[i]:.3g} (source: {self.mean[i]:.3g})" for i in columns[:_NAMED]
        )
        more = f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else ""
        found = self.batch.magnitude.max() / self.range.max().clamp_min(1e-30)
        fix = _FIX
        if not self.is_table and 50 < float(found) < 2000:
            fix = "Images from 0 to 255 are divided by 255 before they are normalised. " + _FIX
        verb = "are" if problem.startswith("on ") else "seem to be"
        return f"The inputs {verb} {problem}: {listed}{more}. {fix}"

    def _name(self, column: int) -> str:
        if self.names:
            return f"column {self.names[column]!r}"
        return f"{'column' if self.is_table else 'channel'} {column}"
