"""How far each sample of a batch lies from the others, in a robust scale.

Deviations are measured column by column of the input, in units of the column's median deviation. Medians keep the scale
where it is when a few samples are absurd, and a batch that is shifted or rescaled as a whole keeps its deviations.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEAST_ROWS = 16  # medians of fewer samples vary so much that good samples of long-tailed columns look like outliers
_REFERENCE_ROWS = 32  # samples that centre and scale are taken from: medians of many more cost time and change little
_MOST_COLUMNS = 256  # of a table, or channels; what has more counts as one

Columns = NDArray[np.floating]


def is_table(inputs: Tensor) -> bool:
    """Return whether inputs (B, C) have columns to be compared each for itself: at most 256 of them."""
    return inputs.ndim == 2 and inputs.shape[1] <= _MOST_COLUMNS


def column_values(inputs: Tensor) -> Tensor:
    """Summarise each sample by a few columns, on the device of the inputs.

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
    channels = 2 if inputs.ndim > 2 and inputs.shape[1] <= _MOST_COLUMNS else 1
    inner = tuple(range(channels, inputs.ndim))
    if inner and inputs.is_cuda:  # in one pass; on a CPU this norm is slow
        values: Tensor = torch.linalg.vector_norm(inputs, torch.inf, dim=inner)
    else:
        values = inputs.abs().amax(dim=inner) if inner else inputs.abs()
    return values if channels == 2 else values[:, None]


def as_columns(values: Tensor) -> Columns:
    """Return values (B, C) as columns (C, B), of float32 at the least; waits for their device."""
    values = values.detach().cpu()
    found = (values if values.dtype in (torch.float32, torch.float64) else values.float()).numpy()
    return np.ascontiguousarray(found.T)


def deviations(columns: Columns, *, table: bool) -> Columns:
    """Measure how far samples lie from the others of their batch, in robust units of each column.

    ``|v_ic − m_c| / s_c``. In a table ``m_c`` is the column's median and ``s_c`` its median absolute deviation;
    magnitudes of channels are compared with their median, ``m_c = 0`` and ``s_c`` the median of ``v_c``. A column with
    ``s_c = 0``, such as a sparse one, takes the median of the other columns' scales. Medians are those of at most 63
    evenly spaced samples; of two middle values they take the lower.

    Args:
        columns: (C, B) from :func:`as_columns`, of at least 16 samples.
        table: whether they are those of a table.

    Returns:
        (C, B) deviations; 0 where no column has a scale, not finite where a value is not.

    Example:
        >>> deviations(np.array([[0.0, 1.0, 2.0, 3.0, 500.0]]), table=True)
        array([[  2.,   1.,   0.,   1., 498.]])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        centre, scale = _centre_and_scale(columns, table=table)
        varied = scale[scale > 0]
        usual = _lower_medians(varied[None])[0, 0] if len(varied) else np.inf  # what is divided by infinity is 0
        found: Columns = np.abs(columns - centre) / np.where(scale > 0, scale, usual)
    return found


def _centre_and_scale(columns: Columns, *, table: bool) -> tuple[Columns, Columns]:
    """(C, 1) ``m`` and ``s``."""
    rows = columns[:, :: max(1, columns.shape[1] // _REFERENCE_ROWS)]
    if not table:
        return np.zeros_like(rows[:, :1]), _lower_medians(rows)
    centre = _lower_medians(rows)
    return centre, _lower_medians(np.abs(rows - centre))


def _lower_medians(rows: Columns) -> Columns:
    middle = (rows.shape[1] - 1) // 2
    medians: Columns = np.sort(rows, axis=1)[:, middle : middle + 1]  # of so few numbers sooner than by partition
    return medians
