"""Validation of source statistics files: their metadata, tensors and covariance spectrum."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regtta._version import __version__
from regtta.errors import ForeignFileError, NewerFormatError
from regtta.persistence import parse_json

FORMAT_VERSION = 1
TENSORS = ("mean", "variances", "basis", "feature_variances")
RANGES = "input_ranges"
# Decompositions in float64 are accurate to about 1e-12 at any practical width; larger deviations are damage.
_ROUNDING = 1e-8


def read_about(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the validated metadata of a statistics file; raise a FileError if it is of another kind or format."""
    try:
        about = parse_json(metadata["regtta.statistics"])
        if not isinstance(about, dict):
            raise TypeError(f"expected an object, found {type(about).__name__}")
        version = int(about["format"])
        missing = {"count", "head", "fingerprint"} - set(about)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise ForeignFileError(
            f"{path} is a safetensors file, but not one of source statistics (model weights, perhaps?). "
            "Make one with regtta.collect(model, loader).save(path)."
        ) from error
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} has format {version}, newer than {FORMAT_VERSION}, the newest that regtta "
            f"{__version__} reads. Upgrade regtta (the file was written by {about.get('regtta')})."
        )
    if missing:
        raise ForeignFileError(f"{path} lacks {sorted(missing)}: it was not written by regtta.")
    if type(about["count"]) is not int or about["count"] < 2:
        raise ForeignFileError(
            f"{path}: expected a count of 2 samples or more, found {str(about['count'])[:40]}. Collect it again."
        )
    for name in ("head", "fingerprint"):
        if not isinstance(about[name], str):
            raise ForeignFileError(f"{path}: expected {name!r} to be a string, found {type(about[name]).__name__}.")
    norm = about.get("largest_feature_norm", 0.0)
    if type(norm) not in (int, float) or not 0 <= norm < math.inf:
        raise ForeignFileError(
            f"{path}: expected largest_feature_norm of at least 0, found {str(norm)[:40]}. Collect it again."
        )
    return about


def check_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise a ForeignFileError unless all shapes are consistent and all values are finite float64."""
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
        raise _damaged(path, f"{RANGES!r} is not one finite float64 of at least 0 per column")


def check_spectrum(path: Path, variances: Tensor, basis: Tensor, feature_variances: Tensor) -> None:
    """Raise a ForeignFileError unless ``V diag(λ) Vᵀ`` is a covariance with the given diagonal.

    This takes one (D, D) product: half a second for D = 2048 on one core.

    Args:
        path: path of the file, for the error.
        variances: (D,) λ, descending and non-negative.
        basis: (D, D) V, with orthonormal columns.
        feature_variances: (D,) the diagonal of the covariance, non-negative.
    """
    for name, values in {"variances": variances, "feature_variances": feature_variances}.items():
        if bool((values < 0).any()):
            raise _damaged(path, f"{name!r} has negative values")
    if bool((variances[1:] > variances[:-1]).any()):
        raise _damaged(path, "'variances' are not in descending order")
    off = float((basis.T @ basis - torch.eye(len(basis), dtype=basis.dtype)).abs().max())
    if not off <= _ROUNDING:
        raise _damaged(path, f"the columns of 'basis' are not orthonormal (off by {off:.2g})")
    gap = float(((basis * basis) @ variances - feature_variances).abs().max())
    if not gap <= _ROUNDING * float(variances[0]):
        raise _damaged(path, f"'feature_variances' do not match the spectrum (off by {gap:.2g})")


def _damaged(path: Path, why: str) -> ForeignFileError:
    return ForeignFileError(f"{path}: {why}. The file is damaged: collect the statistics again.")
