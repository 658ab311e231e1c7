"""California Housing: house prices by area, with the districts near the bay as the target.

Rows with missing values are dropped. The target is ``ocean_proximity == "NEAR BAY"``, the source all other rows. All
nine numeric columns, including the label, are standardised by the mean and the (biased) standard deviation of the
source.
"""

import hashlib
import io
import logging
import warnings
from pathlib import Path

import torch

from regtta.errors import ExistingFileError, InvalidFileError
from regtta.persistence import convert_errors
from regtta_bench.data.archives import Progress, download_file, read_maybe_gzipped
from regtta_bench.data.catalogue import DATASETS, find_file, resolve_data_folder
from regtta_bench.data.domains import Domain, ShiftedDataset, split_domain

LABEL = "median_house_value"
AREA = "ocean_proximity"
TARGET_AREA = "NEAR BAY"
CALIFORNIA_VALIDATION_SHARE = 0.1

CALIFORNIA_URL = "https://raw.githubusercontent.com/ageron/handson-ml/master/datasets/housing/housing.csv"
CALIFORNIA_SHA256 = "8a3727f4cf54ac1a327f69b1d5b4db54c5834ea81c6e4efc0d163300022a685e"  # of the unpacked CSV
_DOWNLOAD_PATH = "california_housing/housing.csv"
_MAX_BYTES = 16 * 2**20  # bytes; the table has 1.4 MB
_MAX_LINE_BYTES = 10_000  # bytes; its longest line has some 100, in 10 columns

_logger = logging.getLogger(__name__)


def california(folder: Path, *, seed: int) -> ShiftedDataset:
    """Read source and target; ``seed`` determines the tenth of the source that is held out."""
    import pandas as pd

    path = find_file(folder, "california")
    raw = read_maybe_gzipped(path, _MAX_BYTES)
    if hashlib.sha256(raw).hexdigest() != CALIFORNIA_SHA256:
        _logger.warning("%s is not the California Housing table that the published results were computed from.", path)
    if max(map(len, raw.splitlines()), default=0) > _MAX_LINE_BYTES:
        raise InvalidFileError(
            f"Expected lines of at most {_MAX_LINE_BYTES} bytes in {path}, found longer ones. Download it again."
        )
    with (
        convert_errors(
            lambda why: InvalidFileError(f"{path} cannot be read as a CSV table: {why}. Download it again.")
        ),
        warnings.catch_warnings(action="error", category=pd.errors.ParserWarning),  # for lines longer than the first
    ):
        table = pd.read_csv(io.BytesIO(raw), index_col=False).dropna()
    if LABEL not in table or AREA not in table:
        raise InvalidFileError(f"Expected the columns {LABEL!r} and {AREA!r} in {path}, found {list(table)}.")
    near = (table.pop(AREA) == TARGET_AREA).to_numpy()
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if texts or near.all() or not near.any():
        found = f"text in {texts}" if texts else f"{near.sum()} of {len(near)} rows with {AREA} {TARGET_AREA!r}"
        raise InvalidFileError(
            f"Expected numbers and rows of both domains in {path}, found {found}. Download it again."
        )
    source = table[~near]
    scaled = (table - source.mean()) / source.std(ddof=0)
    labels = torch.tensor(scaled.pop(LABEL).to_numpy(), dtype=torch.float32).unsqueeze(1)
    whole = Domain(torch.tensor(scaled.to_numpy(), dtype=torch.float32), labels)
    inside = torch.tensor(near)
    train, validation = split_domain(whole.take(~inside), CALIFORNIA_VALIDATION_SHARE, seed)
    return ShiftedDataset("california", train, validation, whole.take(inside))


def download_california(folder: str | Path, *, url: str = CALIFORNIA_URL, progress: Progress | None = None) -> Path:
    """Download the table into ``folder`` and return its path.

    The checksum is verified before the file is moved into place. Existing files are never overwritten.

    Args:
        folder: folder of the data sets.
        url: https URL of the uncompressed CSV.
        progress: callback with the number of bytes so far, and the total or None if it is unknown.
    """
    folder = resolve_data_folder(folder)
    for name in DATASETS["california"].paths:
        if (folder / name).exists():
            raise ExistingFileError(f"{folder / name} exists. Use it as it is, or remove it first.")
    path = folder / _DOWNLOAD_PATH
    path.parent.mkdir(exist_ok=True)
    return download_file(url, path, sha256=CALIFORNIA_SHA256, limit=_MAX_BYTES, progress=progress)
