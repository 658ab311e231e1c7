"""Paired comparison of the losses of several candidates with those of baselines, with simultaneous intervals.

The interval is a studentised bootstrap of the maximum over the candidates (max-t; Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993, section 12.5; Westfall and Young, "Resampling-Based Multiple Testing", 1993).
Differences of squared errors are skewed and heavy-tailed, and on few samples an interval by Student's t then excludes
zero far too often if a candidate helps most samples and harms a few severely. The studentised bootstrap estimates the
skewness from the differences themselves. Candidates are resampled together, so that the correction for their number
takes their correlation into account.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regtta.errors import BatchError
from regtta.options import check_fraction, check_positive_int

RESAMPLES = 4000


@dataclass(frozen=True)
class PairedComparison:
    """Mean reduction of the loss by one candidate, against its baseline on the same samples.

    Attributes:
        gain: mean difference of the losses, baseline minus candidate; positive if the candidate is better.
        low, high: simultaneous confidence interval of the gain; infinite if the differences do not bound it.
        p_value: smallest ``1 − confidence`` at which the interval excludes zero, adjusted for all candidates.
    """

    gain: float
    low: float
    high: float
    p_value: float

    @property
    def helps(self) -> bool:
        """True if the whole interval is above zero."""
        return self.low > 0


def compare_losses(
    baseline: Tensor,
    candidates: Tensor,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[PairedComparison, ...]:
    """Compare the losses of m candidates with those of their baseline on the same n samples.

    With ``d_ij = baseline_ij − candidate_ij``, mean ``d̄_j`` and standard error ``s_j``, each resample gives
    ``t*_j = (d̄*_j − d̄_j) / s*_j``. The interval of candidate j is ``[d̄_j − q₊ s_j, d̄_j − q₋ s_j]`` with the quantiles
    ``q₊`` of ``max_j t*_j`` and ``q₋`` of ``min_j t*_j``, each at half of ``1 − confidence``. The intervals contain all
    true mean differences at once with the given confidence, if the samples are independent.

    Args:
        baseline: losses ``(n,)``, or ``(n, m)`` if each candidate has its own baseline.
        candidates: losses ``(n, m)``.
        confidence: simultaneous coverage of the intervals.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.

    Returns:
        One comparison per candidate.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> errors = torch.randn(64, generator=generator)
        >>> better, = compare_losses(errors**2, (0.5 * errors[:, None]) ** 2)
        >>> better.helps, round(better.gain / (errors**2).mean().item(), 3)
        (True, 0.75)
    """
    check_fraction("confidence", confidence)
    check_positive_int("resamples", resamples)
    shapes = (candidates.shape[:1], candidates.shape)
    if candidates.ndim != 2 or baseline.shape not in shapes or len(candidates) < 2:
        raise BatchError(
            "Expected losses (n, m) of the candidates and (n,) or (n, m) of the baseline on at least 2 samples, found "
            f"{tuple(candidates.shape)} and {tuple(baseline.shape)}. Pass one row per sample in both."
        )
    differences = (baseline if baseline.ndim == 2 else baseline.unsqueeze(1)).double() - candidates.double()
    mean = differences.mean(dim=0)
    error = differences.std(dim=0) / math.sqrt(len(differences))
    varies = error > 1e-12 * mean.abs()
    largest, smallest = _extremes((differences - mean)[:, varies], resamples, seed)
    tail = (1 - confidence) / 2
    upper, lower = _quantile(largest, 1 - tail), -_quantile(-smallest, 1 - tail)
    found = []
    for value, spread, ok in zip(mean.tolist(), error.tolist(), varies.tolist(), strict=True):
        if not ok:  # all differences are equal, so the sample says nothing about their variation
            bounded = 0.0 if value == 0 else math.inf
            found.append(PairedComparison(value, -bounded, bounded, 1.0))
            continue
        above = float((largest >= value / spread).double().mean())
        below = float((smallest <= value / spread).double().mean())
        p_value = min(1.0, 2 * min(above, below))
        found.append(PairedComparison(value, value - upper * spread, value - lower * spread, p_value))
    return tuple(found)


def _extremes(centred: Tensor, resamples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the largest and the smallest studentised mean over the candidates of each resample, ``(resamples,)``.

    A resample of equal differences has no variance: its studentised mean is infinite, which widens the interval.
    """
    count, candidates = centred.shape
    if candidates == 0:
        return torch.zeros(resamples), torch.zeros(resamples)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(count, (resamples, count), generator=generator)
    weights = torch.zeros(resamples, count, dtype=torch.float64)
    weights.scatter_add_(1, rows, torch.ones_like(weights))
    centred = centred.cpu() / centred.cpu().abs().amax(dim=0)  # squares of any unit stay within range
    mean = weights @ centred / count
    variance = (weights @ centred**2 / count - mean**2) * count / (count - 1)
    variance[variance < 1e-12] = 0.0  # rounding of a variance that is zero
    studentised = mean / (variance / count).sqrt()
    studentised = torch.where(studentised.isnan(), 0.0, studentised)
    return studentised.amax(dim=1), studentised.amin(dim=1)


def _quantile(values: Tensor, level: float) -> float:
    """Return the smallest value that at least a share ``level`` of the values does not exceed."""
    index = min(math.ceil(level * len(values)), len(values)) - 1
    return float(values.sort().values[index])
