"""Files of source statistics: writing, reading and validation of metadata, tensors and covariance spectrum."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regtta._version import __version__
from regtta.errors import InvalidFileError, MissingFileError, NewerFormatError
from regtta.persistence import MAX_COUNT, check_not_existing, parse_json, read_safetensors, write_safetensors
from regtta.statistics.input_moments import find_duplicate, unknown_columns
from regtta.statistics.outliers import MAX_COLUMNS

if TYPE_CHECKING:
    from regtta.statistics.source import SourceStatistics

STATISTICS_FORMAT_VERSION = 1
_TENSORS = ("mean", "variances", "basis", "feature_variances")
_RANGES = "input_ranges"
_INPUT_MOMENTS = ("input_mean", "input_variance")
_INPUT_COVARIANCE = "input_covariance"
_EXTRA = "extra/"
_KEY = "regtta.statistics"
# Decompositions in float64 are accurate to header 1e-12 at any practical width; larger deviations are damage.
_ROUNDING = 1e-8


def write_statistics(path: str | Path, source: "SourceStatistics", *, overwrite: bool) -> None:
    """Write ``source`` to a safetensors file."""
    header = {
        "format": STATISTICS_FORMAT_VERSION,
        "regtta": __version__,
        "count": source.count,
        "head": source.head,
        "fingerprint": source.fingerprint,
        "largest_feature_norm": source.largest_feature_norm,
        "columns": list(source.columns),
        "input_count": source.input_count,
    }
    tensors = {name: getattr(source, name) for name in _TENSORS}
    optional = {name: getattr(source, name) for name in (_RANGES, *_INPUT_MOMENTS, _INPUT_COVARIANCE)}
    tensors |= {name: values for name, values in optional.items() if len(values)}
    tensors |= {f"{_EXTRA}{name}": value for name, value in source.extras.items()}
    path = check_not_existing(path, overwrite=overwrite)
    write_safetensors(path, tensors, {_KEY: json.dumps(header)})


def read_statistics(path: str | Path) -> dict[str, Any]:
    """Read and validate a file written by :func:`write_statistics` and return the fields of a SourceStatistics."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(
            f"There is no file {path}. Pass a file of source statistics, written once by regtta.collect(model, "
            "loader).save(path)."
        )
    tensors, metadata = read_safetensors(path)
    header = _read_header(path, metadata)
    _check_tensors(path, tensors)
    _check_inputs(path, header, tensors)
    _check_spectrum(path, *(tensors[name] for name in ("variances", "basis", "feature_variances")))
    fields: dict[str, Any] = {name: tensors[name] for name in _TENSORS}
    fields |= {name: header[name] for name in ("count", "head", "fingerprint")}
    fields |= {name: tensors[name] for name in (_RANGES, *_INPUT_MOMENTS, _INPUT_COVARIANCE) if name in tensors}
    fields["extras"] = {name.removeprefix(_EXTRA): value for name, value in tensors.items() if name.startswith(_EXTRA)}
    fields["columns"] = tuple(header.get("columns", ()))
    fields["input_count"] = header.get("input_count", 0)
    fields["largest_feature_norm"] = float(header.get("largest_feature_norm", 0.0))
    return fields


def check_rank(path: str | Path, rank: int, count: int) -> None:
    """Raise an InvalidFileError unless ``rank`` is possible for the features of ``count`` samples."""
    if not 0 < rank < count:
        raise InvalidFileError(
            f"{path}: expected features of {count} samples to have a rank from 1 to {count - 1}, found {rank}. The "
            "file is damaged: collect the statistics again."
        )


def _read_header(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the validated metadata of a statistics file; raise a FileError if it is of another kind or format."""
    try:
        header = parse_json(metadata[_KEY])
        if not isinstance(header, dict):
            raise TypeError(f"expected an object, found {type(header).__name__}")
        version = int(header["format"])
        missing = {"count", "head", "fingerprint"} - set(header)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InvalidFileError(
            f"{path} is a safetensors file, but not one of source statistics (model weights, perhaps?). "
            "Make one with regtta.collect(model, loader).save(path)."
        ) from error
    if version > STATISTICS_FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} has format {version}, newer than {STATISTICS_FORMAT_VERSION}, the newest that regtta "
            f"{__version__} reads. Upgrade regtta (the file was written by {header.get('regtta')})."
        )
    if missing:
        raise InvalidFileError(f"{path} lacks {sorted(missing)}: it was not written by regtta.")
    if type(header["count"]) is not int or header["count"] < 2:
        raise InvalidFileError(
            f"{path}: expected a count of 2 samples or more, found {str(header['count'])[:40]}. Collect it again."
        )
    for name in ("head", "fingerprint"):
        if not isinstance(header[name], str):
            raise InvalidFileError(f"{path}: expected {name!r} to be a string, found {type(header[name]).__name__}.")
    norm = header.get("largest_feature_norm", 0.0)
    if type(norm) not in (int, float) or not 0 <= norm < math.inf:
        raise InvalidFileError(
            f"{path}: expected largest_feature_norm of at least 0, found {str(norm)[:40]}. Collect it again."
        )
    return header


def _check_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise a InvalidFileError unless all shapes are consistent and all values are finite float64."""
    width = tensors["mean"].numel() if "mean" in tensors else 0
    for name in _TENSORS:
        shape = (width, width) if name == "basis" else (width,)
        found = tensors.get(name)
        if found is None or width == 0 or tuple(found.shape) != shape:
            has = "nothing" if found is None else f"shape {tuple(found.shape)}"
            raise InvalidFileError(f"{path}: expected {name!r} of shape {shape}, found {has}.")
        if found.dtype != torch.float64 or not found.isfinite().all():
            raise InvalidFileError(f"{path}: {name!r} is not finite float64: the file is damaged.")
    for name in (_RANGES, *_INPUT_MOMENTS):
        values = tensors.get(name, unknown_columns())
        if values.ndim != 1 or values.dtype != torch.float64 or not bool(values.isfinite().all()):
            raise _damaged(path, f"{name!r} is not one finite float64 per column")
        if name != "input_mean" and bool((values < 0).any()):
            raise _damaged(path, f"{name!r} has negative values")


def _check_inputs(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise an InvalidFileError unless the columns of the inputs and their ranges and moments match in number."""
    columns = header.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise _damaged(path, f"'columns' are not a list of names: {str(columns)[:40]}")
    if len(set(columns)) < len(columns):
        raise _damaged(path, f"'columns' has {find_duplicate(tuple(columns))!r} twice")
    widths = {name: len(tensors.get(name, ())) for name in (_RANGES, *_INPUT_MOMENTS)}
    if widths["input_mean"] != widths["input_variance"]:
        raise _damaged(path, "'input_mean' and 'input_variance' are of different lengths")
    width = len(columns) if len(columns) <= MAX_COLUMNS else 1  # wider tables are summarised by one column
    for name, found in widths.items():
        if columns and found not in (0, width):
            raise _damaged(path, f"{name!r} has {found} values for {len(columns)} columns")
    _check_covariance(path, tensors)
    count = header.get("input_count", 0)
    possible = type(count) is int and (count == 0 or (widths["input_mean"] > 0 and 2 <= count <= MAX_COUNT))
    if not possible:
        raise _damaged(path, f"'input_count' is not the number of values behind 'input_mean': {str(count)[:40]}")


def _check_covariance(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise an InvalidFileError unless the covariance of the inputs is absent, or a covariance with their variances."""
    found, variance = tensors.get(_INPUT_COVARIANCE), tensors.get("input_variance", unknown_columns())
    if found is None:
        return
    if tuple(found.shape) != (len(variance), len(variance)) or found.dtype != torch.float64:
        raise _damaged(path, f"{_INPUT_COVARIANCE!r} is not one float64 per pair of columns")
    bound = torch.outer(variance.sqrt(), variance.sqrt())
    near = bool(((found.diagonal() - variance).abs() <= _ROUNDING * variance).all())
    if not near or not bool((found.abs() <= bound * (1 + _ROUNDING)).all()) or not torch.equal(found, found.T):
        raise _damaged(path, f"{_INPUT_COVARIANCE!r} is not a covariance with the variances of the inputs")


def _check_spectrum(path: Path, variances: Tensor, basis: Tensor, feature_variances: Tensor) -> None:
    """Raise a InvalidFileError unless ``V diag(λ) Vᵀ`` is a covariance with the given diagonal.

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


def _damaged(path: Path, why: str) -> InvalidFileError:
    return InvalidFileError(f"{path}: {why}. The file is damaged: collect the statistics again.")
