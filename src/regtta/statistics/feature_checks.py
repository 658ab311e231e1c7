"""Checks of source features: finite, varying from sample to sample, and of enough samples."""

import logging
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regtta.errors import StatisticsError
from regtta.models import Forward, Inputs, input_tensors
from regtta.statistics.outliers import MIN_ROWS

if TYPE_CHECKING:
    from regtta.statistics.source import SourceStatistics

# Features of trained models have a standard deviation of 0.01 to 100, and at least a hundredth of their size.
MIN_DEVIATION = 1e-6
MIN_RELATIVE_DEVIATION = 1e-3
SAMPLES_PER_DIRECTION = 2
_BATCHES_BETWEEN_CHECKS = 32

logger = logging.getLogger(__name__)


def describe_small_variation(mean: Tensor, variances: Tensor) -> str:
    """Return a warning if features barely vary, else an empty text.

    Features barely vary if their standard deviation, the root mean square over the dimensions, is below 1e-6, or below
    0.001 of their root mean square. The first is typical of a deep model without trained weights, whose activations
    shrink from layer to layer; the second of a model that hardly depends on its input. Untrained torchvision models
    differ: those that keep the size of their activations have a relative deviation of 0.015 or more even on noise.

    Args:
        mean: mean of each feature, ``(D,)``.
        variances: variance of each feature or along each principal direction, ``(D,)``.

    Example:
        >>> describe_small_variation(torch.ones(2), torch.full((2,), 0.25))
        ''
        >>> describe_small_variation(torch.ones(2), torch.full((2,), 1e-8))[:44]
        'The features barely vary from sample to samp'
    """
    width = max(1, len(mean))
    variance = float(variances.double().sum()) / width
    square = float(mean.double().square().sum()) / width + variance
    deviation, size = math.sqrt(max(0.0, variance)), math.sqrt(max(0.0, square))
    if deviation >= MIN_DEVIATION and deviation >= MIN_RELATIVE_DEVIATION * size:
        return ""
    return (
        f"The features barely vary from sample to sample: their standard deviation is {deviation:.2g}, and their root "
        f"mean square {size:.2g}. Check that the trained weights are loaded and that inputs are preprocessed as in "
        "training."
    )


def describe_few_samples(source: "SourceStatistics", directions: int | None = None) -> str:
    """Return a warning if the source statistics are of too few samples, else an empty text.

    * Without ``directions``: if the rank of the features is limited by the number of samples N, which span at most
      N − 1 dimensions, instead of by the features.
    * With ``directions``, the number k of principal directions to align: if N < 2k. The k-th variance of a spectrum
      that is estimated from N samples is too small by a factor of up to ``(1 − √(k/N))²`` (Marchenko and Pastur), which
      is 0.09 at N = 2k and falls to 0 at N = k; alignment would shrink the target features towards these variances.

    Example:
        >>> import regtta
        >>> net = torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.Linear(9, 1))
        >>> source = regtta.collect(net, [torch.randn(15, 9)])
        >>> describe_few_samples(source), describe_few_samples(source, 4)
        ('', '')
        >>> describe_few_samples(source, 9)[:66]
        'The statistics of 15 source samples are used to align 9 directions'
    """
    count = source.count
    if directions is not None:
        wanted = SAMPLES_PER_DIRECTION * directions
        if count >= wanted:
            return ""
        return (
            f"The statistics of {count:,} source samples are used to align {directions:,} directions: their smallest "
            f"variances are underestimated. Collect over at least {wanted:,} samples, or pass a smaller k."
        )
    if source.rank < count - 1 or count - 1 >= source.valid_dimensions:
        return ""
    return (
        f"The rank {source.rank:,} of the source features is limited by the number of source samples, {count:,}. "
        f"Collect over more data, at least {SAMPLES_PER_DIRECTION * source.valid_dimensions:,} samples for features of "
        f"{source.valid_dimensions:,} dimensions."
    )


def check_first_batch(inputs: Inputs, features: Tensor) -> str:
    """Return a warning if features ``(B, D)`` of the first source batch barely vary, else an empty text.

    Raises a StatisticsError if different samples have the same features. Batches of fewer than 16 samples, and samples
    that are all the same, tell nothing.
    """
    if len(inputs) < MIN_ROWS or not any(bool((tensor != tensor[:1]).any()) for tensor in input_tensors(inputs)):
        return ""
    if bool((features == features[:1]).all()):
        raise StatisticsError(
            f"The source features do not vary: all {len(inputs)} samples of the first batch have the same features at "
            "the head. Check that the trained weights are loaded, and that the model does not ignore its input."
        )
    values = features.detach().double()
    return describe_small_variation(values.mean(dim=0), values.var(dim=0)) if bool(values.isfinite().all()) else ""


class FeatureChecks:
    """Checks of the features of a collection, batch by batch; each problem is logged at most once.

    Args:
        doubt: warning about the model, to log with the first batch, which shows that the model runs; empty for none.
    """

    def __init__(self, doubt: str = "") -> None:
        self._doubt = doubt
        self._extremes: list[Tensor] = []
        self._batches: list[int] = []
        self._begun = self._warned = False

    def update(self, inputs: Inputs, forward: Forward, batch: int) -> None:
        """Check the first batch, and add the features of batch number ``batch`` to the next check for finiteness.

        Features are checked every few batches, since the result synchronises with a GPU.
        """
        if not self._begun:
            self._begun = True
            if self._doubt:
                logger.warning("%s", self._doubt)
            self._warn(check_first_batch(inputs, forward.features))
        self._extremes += forward.features.aminmax()  # NaN if any feature is
        self._batches.append(batch)
        if len(self._batches) == _BATCHES_BETWEEN_CHECKS:
            self.check_finite()

    def check_finite(self) -> None:
        """Raise a StatisticsError that names the first non-finite batch, if there is one."""
        if not self._batches:
            return
        finite = torch.stack(self._extremes).isfinite().view(-1, 2).all(dim=1).tolist()
        if not all(finite):
            raise StatisticsError(
                f"The model gives non-finite features on source batch {self._batches[finite.index(False)]}. Source "
                "data must be clean: remove those samples, or check the model's weights."
            )
        self._extremes, self._batches = [], []

    def finish(self, source: "SourceStatistics") -> None:
        """Log a warning if all features together barely vary, and one if there are too few samples."""
        if not self._warned:
            self._warn(describe_small_variation(source.mean, source.feature_variances))
        few = describe_few_samples(source)
        if few:
            logger.warning("%s", few)

    def _warn(self, message: str) -> None:
        if message:
            self._warned = True
            logger.warning("%s", message)
