"""Robust deviations of the samples of a batch from the rest of the batch.

Deviations are measured column by column of the input, in units of the column's median absolute deviation, so that a
few absurd samples do not move the scale and a batch that is shifted as a whole has no outliers.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MIN_ROWS = 16  # medians of fewer samples vary so much that good samples of long-tailed columns look like outliers
_REFERENCE_ROWS = 32  # samples used for centre and scale: more cost time and change the medians little
MAX_COLUMNS = 256  # columns of a table, or channels; inputs with more are reduced to one column

ColumnArray = NDArray[np.floating]


def is_table(inputs: Tensor) -> bool:
    """Return True if the inputs are a table (B, C) of at most 256 columns, which are compared one by one."""
    return inputs.ndim == 2 and inputs.shape[1] <= MAX_COLUMNS


def count_columns(inputs: Tensor) -> int:
    """Return the number C of columns that :func:`column_values` gives for inputs (B, ...).

    Example:
        >>> count_columns(torch.zeros(8, 3, 32, 32)), count_columns(torch.zeros(8, 1000))
        (3, 1)
    """
    channels = inputs.ndim >= 2 and inputs.shape[1] <= MAX_COLUMNS
    return inputs.shape[1] if channels else 1


def column_values(inputs: Tensor) -> Tensor:
    """Summarise each sample by a few columns, on the device of the inputs.

    Args:
        inputs: (B, ...) floating point.

    Returns:
        (B, C): the inputs themselves for a table; otherwise the largest magnitude of each channel (dimension 1 of
        images and sequences), or of the whole sample for more than 256 channels. Non-finite samples have non-finite
        columns.

    Example:
        >>> column_values(torch.tensor([[[1.0, -3.0], [0.0, 2.0]]]))
        tensor([[3., 2.]])
    """
    inputs = inputs.detach()
    if is_table(inputs):
        return inputs
    channels = 2 if inputs.ndim > 2 and inputs.shape[1] <= MAX_COLUMNS else 1
    inner = tuple(range(channels, inputs.ndim))
    if inner and inputs.is_cuda:  # one kernel on a GPU; slow on a CPU
        values: Tensor = torch.linalg.vector_norm(inputs, torch.inf, dim=inner)
    else:
        values = inputs.abs().amax(dim=inner) if inner else inputs.abs()
    return values if channels == 2 else values[:, None]


def to_column_array(values: Tensor) -> ColumnArray:
    """Return values (B, C) as a NumPy array (C, B) of float32 or float64; synchronises with their device."""
    values = values.detach().cpu()
    found = (values if values.dtype in (torch.float32, torch.float64) else values.float()).numpy()
    return np.ascontiguousarray(found.T)


def deviations(columns: ColumnArray, *, table: bool) -> ColumnArray:
    """Compute the deviations of samples from the rest of their batch, in robust units of each column.

    ``|v_ic − m_c| / s_c``. For a table ``m_c`` is the column's median and ``s_c`` its median absolute deviation; for
    magnitudes of channels ``m_c = 0`` and ``s_c`` is the median of ``v_c``. A column with ``s_c = 0``, such as a sparse
    one, uses the median of the other columns' scales. Medians are lower medians of at most 63 evenly spaced samples.

    Args:
        columns: (C, B) from :func:`to_column_array`, of at least 16 samples.
        table: True for the columns of a table, False for magnitudes of channels.

    Returns:
        (C, B) deviations: 0 if no column has a positive scale, non-finite for non-finite values.

    Example:
        >>> deviations(np.array([[0.0, 1.0, 2.0, 3.0, 500.0]]), table=True)
        array([[  2.,   1.,   0.,   1., 498.]])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        centre, scale = _centre_and_scale(columns, table=table)
        varied = scale[scale > 0]
        usual = _lower_medians(varied[None])[0, 0] if len(varied) else np.inf  # infinity makes all deviations 0
        found: ColumnArray = np.abs(columns - centre) / np.where(scale > 0, scale, usual)
    return found


def _centre_and_scale(columns: ColumnArray, *, table: bool) -> tuple[ColumnArray, ColumnArray]:
    """Return ``m`` and ``s``, both (C, 1)."""
    rows = columns[:, :: max(1, columns.shape[1] // _REFERENCE_ROWS)]
    if not table:
        return np.zeros_like(rows[:, :1]), _lower_medians(rows)
    centre = _lower_medians(rows)
    return centre, _lower_medians(np.abs(rows - centre))


def _lower_medians(rows: ColumnArray) -> ColumnArray:
    middle = (rows.shape[1] - 1) // 2
    medians: ColumnArray = np.sort(rows, axis=1)[:, middle : middle + 1]  # faster than np.partition for so few values
    return medians
