"""Checks on the tensors of a file of source statistics: whether they are the spectrum of a covariance."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regtta.errors import ForeignFileError

TENSORS = ("mean", "variances", "basis", "feature_variances")
RANGES = "input_ranges"
# Decompositions in float64 are exact to about 1e-12 at any width that models have; what is off by more is no rounding.
_ROUNDING = 1e-8


def check_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise a ForeignFileError unless shapes belong together and all values are finite float64."""
    width = tensors["mean"].numel() if "mean" in tensors else 0
    for name in TENSORS:
        shape = (width, width) if name == "basis" else (width,)
        found = tensors.get(name)
        if found is None or width == 0 or tuple(found.shape) != shape:
            has = "nothing" if found is None else f"shape {tuple(found.shape)}"
            raise ForeignFileError(f"{path}: expected {name!r} of shape {shape}, found {has}.")
        if found.dtype != torch.float64 or not found.isfinite().all():
            raise ForeignFileError(f"{path}: {name!r} is not finite float64: the file is damaged.")
    ranges = tensors.get(RANGES, torch.empty(0, dtype=torch.float64))
    if ranges.ndim != 1 or ranges.dtype != torch.float64 or not bool((ranges.isfinite() & (ranges >= 0)).all()):
        raise _damaged(path, f"{RANGES!r} is not one finite float64 of at least 0 a column")


def check_spectrum(path: Path, variances: Tensor, basis: Tensor, feature_variances: Tensor) -> None:
    """Raise a ForeignFileError unless ``V diag(λ) Vᵀ`` is a covariance with the given diagonal.

    Takes one (D, D) product, half a second for D = 2048 on one core.

    Args:
        path: of the file.
        variances: (D,) λ, falling and not negative.
        basis: (D, D) V, with orthonormal columns.
        feature_variances: (D,) the diagonal, not negative.
    """
    for name, values in {"variances": variances, "feature_variances": feature_variances}.items():
        if bool((values < 0).any()):
            raise _damaged(path, f"{name!r} has negative values, and no variance is")
    if bool((variances[1:] > variances[:-1]).any()):
        raise _damaged(path, "'variances' do not fall")
    off = float((basis.T @ basis - torch.eye(len(basis), dtype=basis.dtype)).abs().max())
    if not off <= _ROUNDING:
        raise _damaged(path, f"the columns of 'basis' are not orthonormal (off by {off:.2g})")
    gap = float(((basis * basis) @ variances - feature_variances).abs().max())
    if not gap <= _ROUNDING * float(variances[0]):
        raise _damaged(path, f"'feature_variances' are not those of the spectrum (off by {gap:.2g})")


def _damaged(path: Path, why: str) -> ForeignFileError:
    return ForeignFileError(f"{path}: {why}. The file is damaged: collect the statistics again.")
