"""How far each sample of a batch lies from the others, in a robust scale.

The score of a sample is its largest deviation over the columns of the input, in units of the column's median deviation.
Medians keep the scale where it is when a few samples are absurd, and a batch that is shifted or rescaled as a whole
keeps its scores.
"""

import torch
from torch import Tensor

LEAST_ROWS = 16  # medians of fewer samples vary so much that good samples of long-tailed columns look like outliers
_REFERENCE_ROWS = 32  # samples that centre and scale are taken from: medians of many more cost time and change little
_MOST_COLUMNS = 256  # of a table, or channels; what has more counts as one


def is_table(inputs: Tensor) -> bool:
    """Return whether inputs (B, C) have columns to be compared each for itself: at most 256 of them."""
    return inputs.ndim == 2 and inputs.shape[1] <= _MOST_COLUMNS


def column_values(inputs: Tensor) -> Tensor:
    """Summarise each sample by a few columns.

    Args:
        inputs: (B, ...) floating point.

    Returns:
        (B, C): a table as it is; else the largest magnitude of each channel, dimension 1 of images and sequences, or of
        the whole sample where there are more than 256 channels. Where a sample is not finite, neither are its columns.

    Example:
        >>> column_values(torch.tensor([[[1.0, -3.0], [0.0, 2.0]]]))
        tensor([[3., 2.]])
    """
    inputs = inputs.detach()
    if is_table(inputs):
        return inputs
    if inputs.ndim <= 2 or inputs.shape[1] > _MOST_COLUMNS:
        inputs = inputs.reshape(len(inputs), 1, -1)
    return inputs.flatten(2).abs().amax(dim=2)


def outlier_scores(values: Tensor, *, table: bool) -> Tensor:
    """Compute the largest deviation of each sample, in robust units of its column.

    ``score_i = max_c |v_ic − m_c| / s_c``. In a table ``m_c`` is the column's median and ``s_c`` its median absolute
    deviation; magnitudes of channels are compared with their median, ``m_c = 0`` and ``s_c`` the median of ``v_c``. A
    column with ``s_c = 0``, such as a sparse one, takes the median of the other columns' scales. Medians are those of
    at most 32 evenly spaced samples.

    Args:
        values: (B, C) from :func:`column_values`, at least 16 rows.
        table: whether they are those of a table.

    Returns:
        (B,) scores; 0 where no column has a scale, NaN where a value is not finite.

    Example:
        >>> outlier_scores(torch.tensor([[0.0], [1.0], [2.0], [3.0], [500.0]]), table=True)
        tensor([  2.,   1.,   0.,   1., 498.])
    """
    centre, scale = _centre_and_scale(values, table=table)
    varied = torch.where(scale > 0, scale, torch.nan)
    usual = varied.nanmedian().nan_to_num(nan=torch.inf)  # dividing by infinity scores 0
    scores: Tensor = ((values - centre).abs_() / torch.where(scale > 0, scale, usual)).amax(dim=1)
    return scores


def all_within(values: Tensor, limit: float, *, table: bool) -> bool:
    """Return whether it is plain that no sample scores above ``limit``, in a fraction of the time of the scores.

    Example:
        >>> values = torch.arange(32.0)[:, None]
        >>> all_within(values, 3.0, table=True), all_within(values, 1.0, table=True)
        (True, False)
    """
    centre, scale = _centre_and_scale(values, table=table)
    lowest, highest = torch.aminmax(values, dim=0)
    largest = torch.maximum(highest - centre, centre - lowest).div_(scale).amax()
    return float(largest) <= limit  # false where a scale is 0 or a value not finite


def _centre_and_scale(values: Tensor, *, table: bool) -> tuple[Tensor, Tensor]:
    """(C,) ``m`` and ``s``."""
    rows = values[:: max(1, len(values) // _REFERENCE_ROWS)]
    if not table:
        return torch.zeros_like(rows[0]), rows.median(dim=0).values
    centre = rows.median(dim=0).values
    return centre, (rows - centre).abs_().median(dim=0).values
